import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Claim, QueueSession } from "../../../src/core/contracts.ts";
import { join, nextClaim } from "../../../src/testing/store/consumer.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const LONG_MS = 60_000;
const PUBLISHED = { status: "published" as const };

describe.skipIf(!hasPostgres())("what owners died with, while lanes are divided and come together", () => {
  let database: OutboxDatabase;
  beforeAll(async () => {
    database = await outboxDatabase();
  });
  afterAll(() => database?.[Symbol.asyncDispose]());

  const session = (relay: string, owner: string): Promise<QueueSession> =>
    join(database.store, { relay, owner: `${owner}-${relay}`, leaseMs: LONG_MS });

  /** As a server may have it that other releases wrote to. */
  const set = (relay: string, owner: string, what: string) =>
    database.query(`update txbox.cursor set ${what}, stamp = pg_current_xact_id() where relay = $1 and owner = $2`, [
      relay,
      `${owner}-${relay}`,
    ]);

  const publishAll = async (one: QueueSession): Promise<void> => {
    await one.tend();
    const claim = await nextClaim(one);
    if (claim !== undefined)
      await one.settle(
        claim,
        claim.messages.map(() => PUBLISHED),
      );
  };

  const share = (relay: string, sessions: readonly QueueSession[]) =>
    until(
      async () => {
        const lanes: number[] = [];
        for (const one of sessions) {
          await publishAll(one);
          lanes.push((await one.tend()).lanes);
        }
        return lanes.every((count) => count === 64 / sessions.length);
      },
      { what: `shares of ${relay}`, timeoutMs: 20_000 },
    );

  it.each(["null, suspect_crashes = 2", "-7, suspect_crashes = 2"])(
    "come together after a rewind, whatever another release left: suspect = %s",
    async (left) => {
      const relay = `rewound${left.length}`;
      const [one, two] = [await session(relay, "one"), await session(relay, "two")];
      await share(relay, [one, two]);
      await set(relay, "two", "suspect = -7, suspect_crashes = 2");
      await database.store.admin.rewind(relay, "now");
      await share(relay, [one, two]);
      await set(relay, "two", `suspect = ${left}`);
      // What an attempt leaves that was tried alone and given up with the lease.
      await set(relay, "one", "suspect = 9, suspect_crashes = 0");
      await two.leave();
      await share(relay, [one]);
      const rows = await database.query("select 1 from txbox.lane where relay = $1 group by cursor_id", [relay]);
      expect(rows.length).toBe(1);
      await one.leave();
    },
  );

  it("do not come back for a message that was settled", async () => {
    const relay = "settled";
    const first = await session(relay, "first");
    await database.enqueue([{ key: "x", n: 1 }]);
    const claim = await until(() => nextClaim(first), { what: "x" });
    const { position } = claim.messages[0]!;
    const [a, b] = [await session(relay, "a"), await session(relay, "b")];
    // The third process dies, for the third time with x in hand.
    const found = await database.query("select lane from txbox.message where position = $1", [String(position)]);
    const deaths = JSON.stringify({ [String(position)]: { deaths: 2, lane: Number(found[0]!["lane"]) } });
    const past = "lease_until = clock_timestamp() - interval '100 ms'";
    await set(relay, "first", `crashes = 2, suspect = ${position}, suspect_crashes = 2, deaths = '${deaths}', ${past}`);
    await database.query(`update txbox.member set ${past} where relay = $1 and owner = $2`, [relay, `first-${relay}`]);
    const claims = new Map<QueueSession, Claim>();
    await until(
      async () => {
        for (const one of [a, b]) {
          await one.tend();
          const next = claims.has(one) ? undefined : await nextClaim(one);
          if (next !== undefined) claims.set(one, next);
        }
        return claims.size > 0;
      },
      { what: "x again", timeoutMs: 20_000 },
    );
    const [holder, other] = claims.has(a) ? [a, b] : [b, a];
    const again = claims.get(holder)!;
    expect([again.alone, again.crashes]).toEqual([true, 3]);
    const error = "The process died 3 times with this message in hand";
    await holder.settle(again, [{ status: "dead", error, attempts: 3, block: false }]);
    await database.enqueue(Array.from({ length: 12 }, (_, n) => ({ key: `k${n}`, n })));
    for (let turn = 0; turn < 60; turn++) for (const one of [a, b]) await publishAll(one);
    await other.leave();
    for (let turn = 0; turn < 60; turn++) await publishAll(holder);
    expect(
      await database.query("select deaths from txbox.cursor where relay = $1 and deaths is not null", [relay]),
    ).toEqual([]);
    // Later, after two deaths of other causes, it is requeued.
    await holder.leave();
    await database.query("update txbox.cursor set crashes = 2, stamp = pg_current_xact_id() where relay = $1", [relay]);
    await database.store.admin.requeue({ relay });
    const later = await session(relay, "later");
    const tried = await until(
      async () => {
        await later.tend();
        return nextClaim(later);
      },
      { what: "x once more", timeoutMs: 10_000 },
    );
    expect([tried.alone, tried.crashes]).toEqual([true, 0]);
    await later.leave();
  });
});
