import { randomUUID } from "node:crypto";
import { jetstream, jetstreamManager, type JetStreamManager } from "@nats-io/jetstream";
import { connect, type ConnectionOptions, headers as newHeaders, type NatsConnection } from "@nats-io/transport-node";
import { eventually } from "../../src/testing/index.ts";
import { type NatsServer, startNats } from "../harness/start-nats.ts";
import { startTcpProxy, type TcpProxy } from "./tcp-proxy.ts";

/** A server with a stream, and ways to break both. */
export interface NatsWorld extends AsyncDisposable {
  readonly server: NatsServer;
  readonly proxy: TcpProxy;
  readonly stream: string;
  /** Connections of the adapter go through the proxy. */
  readonly connect: (options?: ConnectionOptions) => Promise<NatsConnection>;
  /** Means of our own: straight to the server. */
  readonly direct: NatsConnection;
  readonly manager: JetStreamManager;
}

const RECONNECT = { maxReconnectAttempts: -1, reconnectTimeWait: 50, reconnectJitter: 0 };

export async function natsWorld(config?: string): Promise<NatsWorld> {
  const server = await startNats({ owned: true, ...(config === undefined ? {} : { config }) });
  const proxy = await startTcpProxy(Number(new URL(server.url).port));
  const opened: NatsConnection[] = [];
  const open = async (servers: string, options: ConnectionOptions = {}): Promise<NatsConnection> => {
    const connection = await connect({ servers, ...RECONNECT, ...options });
    opened.push(connection);
    return connection;
  };
  const direct = await open(server.url);
  const manager = await jetstreamManager(direct, { timeout: 1000 });
  const stream = `orders-${randomUUID().slice(0, 8)}`;
  await manager.streams.add({ name: stream, subjects: [`${stream}.>`] });
  return {
    server,
    proxy,
    stream,
    direct,
    manager,
    connect: (options) => open(`127.0.0.1:${proxy.port}`, options),
    async [Symbol.asyncDispose]() {
      server.resume();
      await Promise.all(opened.map((connection) => connection.close()));
      await proxy.close();
      await server.stop();
    },
  };
}

export interface StoredMessage {
  readonly subject: string;
  readonly body: Uint8Array;
  readonly headers: Map<string, string>;
}

/** All messages of a stream, by an ordered consumer of the JetStream client; waits until there are `count`. */
export async function storedMessages(world: NatsWorld, stream: string, count: number): Promise<StoredMessage[]> {
  await eventually(
    async () => {
      const { state } = await world.manager.streams.info(stream);
      if (state.messages < count) throw new Error(`${state.messages} of ${count} messages arrived`);
    },
    { timeoutMs: 15_000 },
  );
  const { state } = await world.manager.streams.info(stream);
  if (state.messages === 0) return [];
  const consumer = await jetstream(world.direct).consumers.get(stream);
  const found = [];
  const batch = await consumer.fetch({ max_messages: state.messages, expires: 5000 });
  for await (const { subject, data, headers = newHeaders() } of batch) {
    found.push({
      subject,
      body: data,
      headers: new Map([...headers].map(([name, values]) => [name, values.join(",")])),
    });
    if (found.length === state.messages) break;
  }
  return found;
}
