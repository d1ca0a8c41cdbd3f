/** The part of a socket that is used here. */
interface Socket {
  cork(): void;
  uncork(): void;
  prependListener(event: "drain", listener: () => void): unknown;
}

const known = new WeakSet<Socket>();

/**
 * Lets what is published in one go leave in one write: amqplib writes each message by itself, which is a system call for
 * each. Where the channel does not show its socket, all is as before.
 */
export class GatheredWrites {
  readonly #socket: Socket | undefined;
  #gathering = false;

  constructor(channel: object) {
    this.#socket = socketOf(channel);
    const socket = this.#socket;
    if (socket === undefined || known.has(socket)) return;
    known.add(socket);
    // What was too much for the socket is written when it has room again, ahead of amqplib's own listener.
    socket.prependListener("drain", () => {
      socket.cork();
      process.nextTick(() => socket.uncork());
    });
  }

  /** What is published in this turn goes out together. */
  gather(): void {
    const socket = this.#socket;
    if (socket === undefined || this.#gathering) return;
    this.#gathering = true;
    // amqplib writes in a turn of its own, which comes after this one and before the next.
    setImmediate(() => {
      socket.cork();
      setImmediate(() => {
        this.#gathering = false;
        socket.uncork();
      });
    });
  }
}

function socketOf(channel: object): Socket | undefined {
  const { connection } = channel as { connection?: { stream?: unknown } };
  const stream = connection?.stream;
  const has = (method: string): boolean =>
    typeof stream === "object" && stream !== null && typeof Reflect.get(stream, method) === "function";
  return ["cork", "uncork", "prependListener"].every(has) ? (stream as Socket) : undefined;
}
