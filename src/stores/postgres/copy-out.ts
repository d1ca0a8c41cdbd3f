import type { PgPool, PgPoolClient } from "./postgres-client.ts";

/**
 * A connection that dies while nobody listens ends the process, and the pool stops listening when it hands one out: with
 * a callback we listen in the same moment, with its promise a moment later.
 */
export function checkOut(pool: PgPool, onError: (error?: Error) => void): Promise<PgPoolClient> {
  return new Promise((resolve, reject) => {
    const taken = (error: unknown, client?: PgPoolClient): void => {
      if (client === undefined) return reject(error);
      client.on("error", onError);
      resolve(client);
    };
    const returned = (pool as { connect(callback: typeof taken): unknown }).connect(taken);
    // A pool of another make may know only promises.
    if (returned instanceof Promise) returned.then((client: PgPoolClient) => taken(undefined, client), reject);
  });
}

/** What a client of node-postgres sends messages of the server to while it runs. */
class CopyOut {
  readonly done: Promise<void>;
  /** As with the driver's own queries, for whoever watches them. */
  readonly text: string;
  readonly #onRow: (message: Buffer) => void;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;

  constructor(text: string, onRow: (message: Buffer) => void) {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.text = text;
    this.#onRow = onRow;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  submit(connection: { query(text: string): void }): void {
    connection.query(this.text);
  }
  handleCopyData({ chunk }: { chunk: Buffer }): void {
    this.#onRow(chunk);
  }
  handleError(error: unknown): void {
    this.#reject(error);
  }
  handleReadyForQuery(): void {
    this.#resolve();
  }
  handleCommandComplete(): void {}
  handleRowDescription(): void {}
  handleDataRow(): void {}
  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
  handleCopyInResponse(): void {}
}

/**
 * Runs a COPY to stdout on a connection of the pool, which is closed when `signal` gives up on the answer. False when its
 * client cannot: that of libpq has no such thing.
 */
export async function copyOut(
  pool: PgPool,
  text: string,
  onRow: (message: Buffer) => void,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  let broken = false;
  const onError = (): void => void (broken = true);
  const client = await checkOut(pool, onError);
  const copy = new CopyOut(text, onRow);
  const giveUp = (): void => {
    broken = true;
    copy.handleError(signal?.reason);
  };
  signal?.addEventListener("abort", giveUp, { once: true });
  try {
    if (!("connection" in client)) return false;
    signal?.throwIfAborted();
    void client.query(copy);
    await copy.done;
    return true;
  } finally {
    signal?.removeEventListener("abort", giveUp);
    client.release(broken);
    if (!broken) client.removeListener("error", onError);
  }
}
