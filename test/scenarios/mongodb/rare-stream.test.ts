import { afterAll, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { databaseOf } from "../../../src/stores/mongodb/mongodb-client.ts";
import { mongoNames, tablesOf } from "../../../src/stores/mongodb/mongodb-names.ts";
import { readyByStream, relayFigures } from "../../../src/stores/mongodb/relay-figures.ts";
import { join } from "../../../src/testing/store/consumer.ts";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
afterAll(() => slot.stop());

it("a relay of a rare stream is never shown as done behind more than is counted", async ({ skip }) => {
  skip(slot.skipped, slot.reason);
  await using database = await mongoDatabase(slot.server.url);
  const { client } = database;
  const store = createMongoStore({ client });
  await store.migrator.migrate();
  const outbox = createOutbox({ store });
  const enqueue = (stream: string, count: number) =>
    client.withSession((session) =>
      session.withTransaction(() =>
        outbox.enqueue(
          session,
          Array.from({ length: count }, (_, n) => ({ stream, type: "t", key: `k${n}`, payload: n })),
        ),
      ),
    );
  const sessions = [
    await join(store, { relay: "rare", streams: ["payouts"] }),
    await join(store, { relay: "often", streams: ["orders"] }),
  ];
  const tables = tablesOf(databaseOf(client, undefined), mongoNames("outbox", "inbox"));
  const rare = async () => {
    const found = await relayFigures(tables, readyByStream(tables, 10));
    return found.find(({ name }) => name === "rare");
  };
  await enqueue("orders", 500);
  expect(await rare()).toMatchObject({ pending: 0, pendingEstimated: true, oldestPendingAgeMs: null });
  await enqueue("payouts", 1);
  const { pending, oldestPendingAgeMs } = (await rare())!;
  expect(pending).toBe(1);
  expect(oldestPendingAgeMs).not.toBeNull();
  for (const session of sessions) await session.leave();
});
