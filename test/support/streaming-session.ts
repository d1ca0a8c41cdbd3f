import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { Claim, JoinOptions, QueueSession, SourceEvent, Store } from "../../src/core/contracts.ts";

const START_MS = 2000;
const ARRIVAL_MS = 3000;

/**
 * A store whose sessions read the server's log, and which waits where a relay would: until the stream is there, and until
 * it has brought what was committed before a claim found nothing.
 */
export function streamingStore<S extends Store<object>>(store: S, pool: pg.Pool, schema: string): S {
  const before = store.queue;
  const queue: S["queue"] = {
    async join(options: JoinOptions): Promise<QueueSession> {
      const source = { streams: false };
      const session = await before.join({
        ...options,
        source: "stream",
        onSourceEvent(event: SourceEvent) {
          source.streams = event.type === "stream_started";
          options.onSourceEvent?.(event);
        },
      });
      const claim = session.claim.bind(session);
      const handedOut = new Set<string>();
      const leftIn = () => isLeft(pool, schema, { ...options, handedOut });
      // What came after all, such as a scheduled message that was due, is the first claim of the case.
      let early: Claim | undefined;
      // Not while there is something: it belongs to the case.
      for (const until = performance.now() + START_MS; !source.streams && performance.now() < until; await sleep(5)) {
        if (await leftIn()) break;
        early = await claim("new");
        if (early !== undefined) break;
      }
      session.claim = async (kind) => {
        let claimed = kind === "new" && early !== undefined && session.isCurrent(early) ? early : await claim(kind);
        if (kind === "new") early = undefined;
        const waits = kind === "new" && source.streams;
        const until = waits ? performance.now() + ARRIVAL_MS : 0;
        while (claimed === undefined && performance.now() < until && (await leftIn())) {
          await sleep(3);
          claimed = await claim(kind);
        }
        for (const { position } of claimed?.messages ?? []) handedOut.add(String(position));
        return claimed;
      };
      return session;
    },
  };
  return Object.assign(store, { queue });
}

interface Reader extends Pick<JoinOptions, "relay" | "streams"> {
  readonly handedOut: ReadonlySet<string>;
}

/** Something is committed that the relay's cursor does not cover, and that was not handed out. */
async function isLeft(pool: pg.Pool, schema: string, { relay, streams, handedOut }: Reader): Promise<boolean> {
  const { rows } = await pool.query(
    `select 1 from ${schema}.relay r join ${schema}.cursor c on c.relay = r.name and not r.paused
       join ${schema}.message m on not pg_visible_in_snapshot(m.xid, c.prev)
     where c.relay = $1 and m.position <> all ($2::bigint[])
       and case when $3::text[] is null then m.stream not like 'inbox.%' else m.stream = any ($3) end limit 1`,
    [relay, [...handedOut], streams ?? null],
  );
  return rows.length > 0;
}
