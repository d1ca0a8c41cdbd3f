import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { PostgresSource } from "../../harness/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { verdict, walScene, writers } from "../support/wal-scene.ts";

const TIMES = isLong ? 10 : 1;

/** Each leaves out rows of the log, and is taken back. */
const CHANGES: readonly (readonly [string, string])[] = [
  ["alter publication txbox set (publish = 'update')", "alter publication txbox set (publish = 'insert')"],
  ["alter publication txbox drop table txbox.message", "alter publication txbox add table txbox.message"],
  [
    "alter publication txbox set table txbox.message where (position % 3 = 0)",
    "alter publication txbox set table txbox.message",
  ],
  [
    "alter publication txbox set (publish_via_partition_root = false)",
    "alter publication txbox set (publish_via_partition_root = true)",
  ],
];

/** A later message of a key must not overtake one that was left out. */
describe.skipIf(!hasPostgres()).each([
  ["PostgreSQL 18", "embedded"],
  ["the older PostgreSQL of the system", "path"],
] as const)("a publication that is changed and changed back under load, on %s", (_, binaries: PostgresSource) => {
  const scene = walScene({ binaries });

  it("loses, doubles and reorders nothing", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store, { backoff: { baseMs: 20, maxMs: 50 } });
    await streaming.streams();
    const load = writers(scene.url, store);
    for (let n = 0; n < TIMES * CHANGES.length; n++) {
      const [change, back] = CHANGES[n % CHANGES.length]!;
      await until(() => streaming.events.at(-1)?.type === "stream_started", { what: "the stream", timeoutMs: 90_000 });
      await sleep(300);
      await scene.query(change);
      await sleep(10 + ((n * 37) % 250));
      await scene.query(back);
    }
    await load.stop();
    await until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest" });
    await sleep(500);
    expect(verdict(streaming.publisher, load.committed)).toEqual({ lost: 0, doubled: 0, reordered: 0 });
    expect(streaming.events.filter(({ type }) => type === "stream_lost").length).toBeGreaterThan(TIMES);
  }, 400_000);
});
