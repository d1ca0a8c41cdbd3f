import pg from "pg";

export interface LockWaits {
  /** The longest wait of a writer for a lock on a table, in ms, as the server tells it. */
  readonly longestMs: number;
  stop(): Promise<void>;
}

const WAITING = `select coalesce(max(extract(epoch from clock_timestamp() - waitstart)) * 1000, 0)::float8 as ms from pg_locks
  where not granted and waitstart is not null and locktype = 'relation' and mode = 'RowExclusiveLock'
    and database = (select oid from pg_database where datname = current_database())`;

/** Looks every 10 ms. Unlike the time of a transaction, this does not grow because the machine is busy. */
export async function watchWriterWaits(url: string): Promise<LockWaits> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  let longestMs = 0;
  const stop = new AbortController();
  const running = (async () => {
    while (!stop.signal.aborted) {
      const { rows } = await client.query<{ ms: number }>(WAITING);
      longestMs = Math.max(longestMs, rows[0]!.ms);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await client.end();
  })();
  return {
    get longestMs() {
      return longestMs;
    },
    stop() {
      stop.abort();
      return running;
    },
  };
}
