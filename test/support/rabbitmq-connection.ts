import { connect, type ChannelModel, type RecoveringChannelModel } from "amqplib";

/** A connection that comes back soon, and that can be cut. */
export interface TestConnection extends AsyncDisposable {
  readonly connection: RecoveringChannelModel;
  /** Breaks the socket, as a network does. */
  cut(): void;
}

export async function testConnection(url: string, options: { heartbeat?: number } = {}): Promise<TestConnection> {
  const recovery = { initialDelay: 20, maxDelay: 200, waitForConnect: false };
  const connection = await connect(url, { recovery, ...options });
  let model: ChannelModel | undefined;
  connection.on("connect", (now: ChannelModel) => (model = now));
  connection.on("error", () => undefined);
  await connection.waitForConnect();
  return {
    connection,
    cut() {
      const { stream } = (model?.connection ?? {}) as { stream?: { destroy: (error: Error) => void } };
      stream?.destroy(new Error("the connection was cut"));
    },
    [Symbol.asyncDispose]: () => connection.close(),
  };
}
