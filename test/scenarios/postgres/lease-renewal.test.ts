import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { join, nextClaim } from "../../../src/testing/store/consumer.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { until } from "../../harness/deadline.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const LEASE_MS = 60_000;

describe.skipIf(!hasPostgres())("the lease of a relay on PostgreSQL", () => {
  let database: OutboxDatabase;
  beforeAll(async () => {
    database = await outboxDatabase();
  });
  afterAll(() => database?.[Symbol.asyncDispose]());

  /** The rows that a renewal writes, as they are on the disk, and how long they run yet. */
  async function written(relay: string): Promise<{ rows: string; shortestMs: number }> {
    const [row] = await database.query<{ rows: string; ms: number }>(
      `select string_agg(t.ctid::text || t.xmin::text, ' ' order by t.kind) as rows,
         (extract(epoch from min(t.lease_until) - clock_timestamp()) * 1000)::float8 as ms
       from (select 'cursor' as kind, ctid, xmin, lease_until from txbox.cursor where relay = $1
             union all select 'member', ctid, xmin, lease_until from txbox.member where relay = $1) t`,
      [relay],
    );
    return { rows: row!.rows, shortestMs: row!.ms };
  }

  const shorten = (table: "cursor" | "member", relay: string, ms: number) =>
    database.query(
      `update txbox.${table} set lease_until = clock_timestamp() + make_interval(secs => $2)
         ${table === "cursor" ? ", stamp = pg_current_xact_id()" : ""} where relay = $1`,
      [relay, ms / 1000],
    );

  it("is written when it is due, and not with each look", async () => {
    const session = await join(database.store, { relay: "idle", leaseMs: LEASE_MS });
    await session.tend();
    const before = await written("idle");
    for (let i = 0; i < 5; i++) await session.tend();
    expect((await written("idle")).rows).toBe(before.rows);
    await shorten("cursor", "idle", LEASE_MS / 2);
    await session.tend();
    const { shortestMs } = await written("idle");
    expect(shortestMs).toBeGreaterThan(LEASE_MS * 0.9);
    await session.leave();
  });

  it("of a process that settles all the time does not run out as a member", async () => {
    const session = await join(database.store, { relay: "busy", leaseMs: 600 });
    const started = performance.now();
    await until(
      async () => {
        await database.enqueue([{ key: "k", n: 1 }]);
        const claim = await nextClaim(session);
        if (claim !== undefined) await session.settle(claim, [{ status: "published" }]);
        await session.tend();
        const [alive] = await database.query(
          "select 1 from txbox.member where relay = 'busy' and lease_until > clock_timestamp()",
        );
        expect(alive).toBeDefined();
        return performance.now() - started > 1500;
      },
      { what: "two and a half leases", intervalMs: 20, timeoutMs: 20_000 },
    );
    await session.leave();
  });

  it.each([
    ["taken by another", "owner = 'another', token = gen_random_uuid(), epoch = epoch + 1"],
    ["rewound", "token = gen_random_uuid(), epoch = epoch + 1"],
  ])("that was %s counts no more at the next look, however long it would run", async (what, change) => {
    const relay = what.replaceAll(" ", "-");
    await database.enqueue([{ key: relay, n: 1 }]);
    const session = await join(database.store, { relay, leaseMs: LEASE_MS });
    const claim = await nextClaim(session);
    expect(claim?.messages.length).toBeGreaterThan(0);
    await database.query(
      `update txbox.cursor set ${change}, seq = seq + 1, stamp = pg_current_xact_id() where relay = $1`,
      [relay],
    );
    expect(session.isCurrent(claim!)).toBe(true);
    await session.tend();
    expect(session.isCurrent(claim!)).toBe(false);
    await session.leave();
  });

  it("counts no more when a crash of the server took back what this process had written", async () => {
    const relay = "set-back";
    await database.enqueue([{ key: relay, n: 1 }]);
    const session = await join(database.store, { relay, leaseMs: LEASE_MS });
    const claim = await nextClaim(session);
    await database.query("update txbox.cursor set seq = seq - 1, stamp = pg_current_xact_id() where relay = $1", [
      relay,
    ]);
    await session.tend();
    expect(session.isCurrent(claim!)).toBe(false);
    await session.leave();
  });
});
