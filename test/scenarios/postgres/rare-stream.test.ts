import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { join } from "../../../src/testing/store/consumer.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

it("a relay of a rare stream is never shown as done behind more than is looked at", { timeout: 120_000 }, async () => {
  await using database = await outboxDatabase();
  const session = await join(database.store, { relay: "rare", streams: ["payouts"] });
  const write = (stream: string, count: number) =>
    database.query(
      `insert into txbox.message (id, size, lane, stream, type, key, payload)
       select $1::text || n, 2, (n % 64)::smallint, $1::text, 't', 'k' || n % 1000, '{}' from generate_series(1, $2::int) n`,
      [stream, count],
    );
  const rare = async () => (await database.store.admin.relays()).find(({ name }) => name === "rare");
  await write("orders", 150_000);
  expect(await rare()).toMatchObject({ pending: 0, pendingEstimated: false, oldestPendingAgeMs: null });
  await write("orders", 60_000);
  await write("payouts", 1);
  await sleep(50);
  const startedAt = performance.now();
  const found = await rare();
  expect(performance.now() - startedAt).toBeLessThan(10_000);
  expect(found).toMatchObject({ pending: 1, pendingEstimated: true });
  expect(found?.oldestPendingAgeMs).toBeGreaterThanOrEqual(40);
  await session.leave();
});
