import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { Claim, JoinOptions, QueueSession, SourceEvent, Store } from "../../src/core/contracts.ts";

const START_MS = 2000;
const CATCH_UP_MS = 5000;

/**
 * A store whose sessions read the server's log, and which waits where a relay would: until the stream is there, and until
 * it has brought what was committed before a claim found nothing.
 */
export function streamingStore<S extends Store<object>>(store: S, pool: pg.Pool, schema: string): S {
  const before = store.queue;
  const queue: S["queue"] = {
    async join(options: JoinOptions): Promise<QueueSession> {
      let streams = false;
      const session = await before.join({
        ...options,
        source: "stream",
        onSourceEvent(event: SourceEvent) {
          streams = event.type === "stream_started";
          options.onSourceEvent?.(event);
        },
      });
      const claimNew = session.claim.bind(session, "new");
      let early: Claim | undefined;
      const until = performance.now() + START_MS;
      while (early === undefined && !streams && performance.now() < until) {
        if (await isBehind(pool, schema, options.relay)) break;
        early = await claimNew();
        await sleep(5);
      }
      const claim = session.claim.bind(session);
      session.claim = async (kind) => {
        if (kind === "retry") return claim(kind);
        const first = early;
        early = undefined;
        if (first !== undefined && session.isCurrent(first)) return first;
        const claimed = await claimNew();
        if (claimed !== undefined || !streams) return claimed;
        await caughtUp(pool);
        return claimNew();
      };
      return session;
    },
  };
  return Object.assign(store, { queue });
}

/** Something is committed that the relay's cursor does not cover. */
async function isBehind(pool: pg.Pool, schema: string, relay: string): Promise<boolean> {
  const { rows } = await pool.query(
    `select 1 from ${schema}.cursor c join ${schema}.message m on not pg_visible_in_snapshot(m.xid, c.prev) where c.relay = $1 limit 1`,
    [relay],
  );
  return rows.length > 0;
}

/** Everything that is committed now has been sent to those who stream, and there was time to show it. */
async function caughtUp(pool: pg.Pool): Promise<void> {
  const until = performance.now() + CATCH_UP_MS;
  const { rows } = await pool.query<{ lsn: string }>("select pg_current_wal_flush_lsn()::text as lsn");
  while (performance.now() < until) {
    const behind = await pool.query(
      "select 1 from pg_stat_replication where state = 'streaming' and sent_lsn < $1::text::pg_lsn",
      [rows[0]!.lsn],
    );
    if (behind.rows.length === 0) break;
    await sleep(2);
  }
  await sleep(25);
}
