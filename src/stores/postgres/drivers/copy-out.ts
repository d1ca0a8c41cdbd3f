import { checkOut } from "./check-out.ts";
import type { PgPool } from "./node-postgres.ts";

/**
 * What a client of node-postgres sends the messages of the server to. Made like its own queries for the sake of what
 * watches those: it ends with its `callback`, which may be exchanged, and all of it may be copied into another object.
 */
function copyQuery(
  text: string,
  onRow: (message: Buffer) => void,
  onCount: (rows: number) => void,
  callback: (error: unknown) => void,
): object {
  const ignore = (): void => undefined;
  const query = {
    text,
    callback,
    submit(connection: { query(text: string): void }): void {
      connection.query(this.text);
    },
    handleCopyData: ({ chunk }: { chunk: Buffer }): void => onRow(chunk),
    handleError(error: unknown): void {
      this.callback(error);
    },
    handleReadyForQuery(): void {
      this.callback(null);
    },
    handleCommandComplete({ text: tag }: { text: string }): void {
      if (tag.startsWith("COPY ")) onCount(Number(tag.slice("COPY ".length)));
    },
    handleRowDescription: ignore,
    handleDataRow: ignore,
    handlePortalSuspended: ignore,
    handleEmptyQuery: ignore,
    handleCopyInResponse: ignore,
  };
  return query;
}

/**
 * Runs a COPY to stdout on a connection of the pool, which is closed when that fails or `signal` gives up on the answer.
 * How many rows the server has sent; undefined when its client cannot: that of libpq has no such thing, and one that
 * pipelines refuses it.
 */
export async function copyOut(
  pool: PgPool,
  text: string,
  onRow: (message: Buffer) => void,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  let broken = false;
  // Whether the server may still be sending, or about to close it.
  let busy = false;
  const onError = (): void => void (broken = true);
  const client = await checkOut(pool, onError);
  try {
    if (!("connection" in client) || ("pipeline" in client && client.pipeline === true)) return undefined;
    signal?.throwIfAborted();
    busy = true;
    let rows = 0;
    await new Promise<void>((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      const onCount = (count: number): void => void (rows = count);
      const copy = copyQuery(text, onRow, onCount, (error) => (error == null ? resolve() : reject(error)));
      // Whatever wraps it may throw, or answer with a promise that fails in its own way.
      Promise.resolve(client.query(copy)).catch(reject);
    });
    busy = false;
    return rows;
  } finally {
    const unfit = broken || busy;
    client.release(unfit);
    if (!unfit) client.removeListener("error", onError);
  }
}
