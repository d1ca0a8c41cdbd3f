import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { verdict, walScene, writers } from "../support/wal-scene.ts";

const MIB = 1_048_576;
/** The long form: a transaction that is open for three minutes, and the bound that is promised. */
const FORM = isLong
  ? { openMs: 180_000, guard: 40 * MIB, most: 64 * MIB, rowsPerSecond: 2000, backMs: 400_000 }
  : { openMs: 15_000, guard: 6 * MIB, most: 20 * MIB, rowsPerSecond: 1500, backMs: 60_000 };

describe.skipIf(!hasPostgres())("a transaction that is open for long", () => {
  const scene = walScene();

  it(
    "pins the server's log no further than the guard lets it, and holds up no other transaction",
    async () => {
      await scene.open();
      const store = scene.openStore({ replication: { maxRetainedBytes: FORM.guard } });
      const streaming = await scene.start(store);
      await streaming.streams();
      const load = writers(scene.url, store, 1);
      const open = new pg.Client({ connectionString: scene.url });
      open.on("error", () => undefined);
      await open.connect();
      await scene.query("create table noise (text text)");
      // Only one that has written keeps the server's log back for longer than 15 s.
      await open.query("begin; insert into noise values ('first')");
      let most = 0;
      let written = 0;
      let slowest = 0;
      const endsAt = performance.now() + FORM.openMs;
      while (performance.now() < endsAt) {
        const [before, startedAt] = [streaming.publisher.sent.length, performance.now()];
        await scene.query("insert into noise select repeat('x', 1000) from generate_series(1, $1::int)", [
          FORM.rowsPerSecond / 4,
        ]);
        written += (FORM.rowsPerSecond / 4) * 1000;
        const [row] = await scene.query<{ bytes: string }>(
          "select coalesce(max(pg_current_wal_lsn() - restart_lsn), 0)::text as bytes from pg_replication_slots",
        );
        most = Math.max(most, Number(row!.bytes));
        await until(() => streaming.publisher.sent.length > before, { what: "delivery" });
        slowest = Math.max(slowest, performance.now() - startedAt);
        await sleep(Math.max(0, 250 - (performance.now() - startedAt)));
      }
      expect(streaming.lost()).toMatch(/maxRetainedBytes/);
      expect(written).toBeGreaterThan(FORM.guard);
      expect(most).toBeLessThan(FORM.most);
      expect(slowest).toBeLessThan(5000);
      await open.query("rollback");
      await open.end();
      // It streams again by itself; after many slots that came to nothing only minutes later.
      const streams = () => streaming.events.at(-1)?.type === "stream_started";
      await until(streams, { what: "the stream", timeoutMs: FORM.backMs });
      await load.stop();
      await until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest" });
      await sleep(300);
      expect(verdict(streaming.publisher, load.committed)).toEqual({ lost: 0, doubled: 0, reordered: 0 });
    },
    FORM.openMs + FORM.backMs + 60_000,
  );
});
