import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { join, PUBLISHED, retry, WAITING } from "../../../src/testing/store/consumer.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip, type ServerSlot } from "../../harness/server-or-skip.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { startStandby, type StandbyServer } from "../support/standby-server.ts";
import { switchingPool } from "../support/switching-pool.ts";

const slot: ServerSlot<PostgresServer> = await serverOrSkip("PostgreSQL", () =>
  startPostgres({ owned: true, settings: { wal_keep_size: "128MB" } }),
);

const RELAY = "orders";
const numbers = (messages: readonly { body: string | Uint8Array }[]) =>
  messages.map(({ body }) => (JSON.parse(String(body)) as { n: number }).n);

/**
 * An asynchronous standby is promoted that has not heard of the last change of owner. The next owner gets the same cursor,
 * epoch and sequence number there as the last one had on the old primary: only the token tells them apart.
 */
describe.skipIf(slot.skipped)("two owners with the same numbers after a failover", () => {
  let primary: PostgresServer;

  beforeAll(() => {
    primary = slot.server;
  });
  afterAll(() => slot.stop());

  async function fence(pool: pg.Pool): Promise<string> {
    const { rows } = await pool.query<{ id: string; epoch: string; seq: string }>(
      "select id::text, epoch::text, seq::text from txbox.cursor",
    );
    return JSON.stringify(rows);
  }

  /** What is written from now on never reaches the standby; gives the way to let go of the frozen processes. */
  async function cutReplication(pool: pg.Pool): Promise<() => void> {
    const { rows } = await pool.query<{ pid: number }>("select pid from pg_stat_replication");
    expect(rows.length).toBeGreaterThan(0);
    for (const { pid } of rows) process.kill(pid, "SIGSTOP");
    return () => rows.forEach(({ pid }) => process.kill(pid, "SIGCONT"));
  }

  async function collide(run: (stage: Stage) => Promise<void>): Promise<void> {
    await using database = await outboxDatabase({ serverUrl: primary.url });
    await using standby: StandbyServer = await startStandby(primary);
    const before = await join(database.store, { relay: RELAY });
    await database.enqueue(series("a", 1));
    const first = await before.claim("new");
    await before.settle(first!, [PUBLISHED]);
    await before.leave();
    await standby.caughtUp();
    const letGo = await cutReplication(database.pool);

    const pools = switchingPool(database.pool);
    await database.enqueue(series("lost", 3));
    const paused = await join(createPostgresStore({ client: pools.client }), { relay: RELAY });
    const inHand = await paused.claim("new");
    expect(numbers(inHand!.messages)).toEqual([1, 2, 3]);

    await standby.promote();
    const url = new URL(standby.url);
    url.pathname = new URL(database.url).pathname;
    await using there = await outboxDatabase({ url: url.href });
    await until(async () => (await there.value("select pg_is_in_recovery()::text")) === "false", { what: "promotion" });
    letGo();
    await there.enqueue(series("c", 3));
    const heir = await join(there.store, { relay: RELAY, leaseMs: 1500 });
    const claim = await heir.claim("new");
    expect(numbers(claim!.messages)).toEqual([1, 2, 3]);
    // Without this the test would show nothing.
    expect(await fence(there.pool)).toBe(await fence(database.pool));
    const late = async () => {
      pools.use(there.pool);
      await expect(paused.settle(inHand!, [PUBLISHED, PUBLISHED, PUBLISHED])).rejects.toMatchObject({
        code: "lease_lost",
      });
    };
    await run({ there, heir, claim: claim!, late });
  }

  it("the late settle of the old one changes nothing, and the new one delivers what had failed once", async () => {
    await collide(async ({ heir, claim, late }) => {
      await late();
      await heir.settle(claim, [retry(1), WAITING, WAITING]);
      const again = await until(() => heir.claim("retry"), { what: "the failed key" });
      expect(numbers(again.messages)).toEqual([1, 2, 3]);
      await heir.settle(again, [PUBLISHED, PUBLISHED, PUBLISHED]);
      await heir.leave();
    });
  });

  it("nor does it when the new one has died meanwhile: the next one gets its messages", async () => {
    await collide(async ({ there, late }) => {
      await late();
      const next = await join(there.store, { relay: RELAY });
      const claim = await until(
        async () => {
          await next.tend();
          return (await next.claim("retry")) ?? (await next.claim("new"));
        },
        { what: "the messages of the dead owner", timeoutMs: 60_000 },
      );
      expect(numbers(claim.messages)).toEqual([1, 2, 3]);
      await next.settle(claim, [PUBLISHED, PUBLISHED, PUBLISHED]);
      await next.leave();
    });
  });
});

interface Stage {
  there: OutboxDatabase;
  heir: Awaited<ReturnType<typeof join>>;
  claim: NonNullable<Awaited<ReturnType<Awaited<ReturnType<typeof join>>["claim"]>>>;
  /** The paused owner reports what it had in hand, to the new primary. */
  late: () => Promise<void>;
}
