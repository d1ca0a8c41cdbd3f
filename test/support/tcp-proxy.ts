import { createServer, connect, type Socket } from "node:net";

/** A way to a server that can be cut: every connection through it breaks, and new ones are taken. */
export interface TcpProxy {
  readonly port: number;
  cut(): void;
  /** New connections lead to another server from now on. */
  leadTo(port: number): void;
  /** What the server sends gets lost, until the connections are cut. */
  mute(): void;
  /** The first of the present connections to send this text: from there on, what it sends waits on the way. */
  hold(from: string): Promise<HeldTraffic>;
  close(): Promise<void>;
}

export interface HeldTraffic {
  /** What the client has sent. */
  text(): string;
  /** Breaks the client's end only. */
  cut(): void;
  /** The server gets it at last, right behind something else. */
  arrive(before: string): void;
}

export async function startTcpProxy(targetPort: number): Promise<TcpProxy> {
  let target = targetPort;
  const sockets = new Set<Socket>();
  const answering = new Map<Socket, Socket>();
  const stranded = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(target, "127.0.0.1");
    answering.set(far, near);
    far.on("close", () => answering.delete(far));
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.setNoDelay(true);
      one.on("error", () => undefined);
      one.on("close", () => {
        sockets.delete(one);
        if (!stranded.has(other)) other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port was assigned");
  const cut = (): void => sockets.forEach((socket) => socket.resetAndDestroy());
  return {
    port: address.port,
    cut,
    leadTo(port) {
      target = port;
    },
    mute() {
      for (const [far, near] of answering) {
        far.unpipe(near);
        far.resume();
      }
    },
    hold: (from) =>
      new Promise((resolve) => {
        let held: Socket | undefined;
        for (const [far, near] of answering) {
          const sent: Buffer[] = [];
          near.unpipe(far);
          near.on("data", (chunk) => {
            if (held === undefined && chunk.includes(from)) {
              held = near;
              resolve(heldTraffic(near, far, sent, stranded));
            }
            if (held === near) sent.push(chunk);
            else far.write(chunk);
          });
          near.resume();
        }
      }),
    close: () =>
      new Promise((resolve) => {
        cut();
        server.close(() => resolve());
      }),
  };
}

function heldTraffic(near: Socket, far: Socket, sent: readonly Buffer[], stranded: Set<Socket>): HeldTraffic {
  return {
    text: () => Buffer.concat(sent).toString("latin1"),
    cut() {
      stranded.add(far);
      near.resetAndDestroy();
    },
    arrive(before) {
      far.unpipe();
      far.resume();
      far.end(Buffer.concat([Buffer.from(before), ...sent]));
    },
  };
}
