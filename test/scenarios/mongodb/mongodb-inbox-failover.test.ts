import { setTimeout as sleep } from "node:timers/promises";
import { type ClientSession, MongoClient } from "mongodb";
import { afterAll, describe, expect, it } from "vitest";
import type { HandleResult } from "../../../src/core/contracts.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { createInbox } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { type MongodbSet, serverOrSkip, startMongodbSet } from "../../harness/index.ts";
import { createSubscription } from "../../support/subscription.ts";

const slot = await serverOrSkip("MongoDB", startMongodbSet);
afterAll(() => slot.stop());

const MESSAGES = 12;

interface Effect {
  _id: string;
  n: number;
}

/** Half of the handlers are in the midst of an operation when it happens, the others between two. */
async function linger(n: number, operation: () => Promise<unknown>): Promise<void> {
  if (n % 2 === 0) return sleep(1500);
  for (let i = 0; i < 300; i++) {
    await operation();
    await sleep(5);
  }
}

/** How the handlers' errors come to the inbox: as the driver throws them, or in an error of the application's own. */
const ways: [how: string, wrap: (error: unknown) => unknown][] = [
  ["as they are", (error) => error],
  ["wrapped by the application", (cause) => new Error("could not book", { cause })],
];

const losses: [what: string, lose: (set: MongodbSet) => Promise<() => Promise<void>>][] = [
  [
    "is killed",
    async (set) => {
      const primary = await set.primary();
      await primary.kill();
      return () => primary.restart();
    },
  ],
  [
    "steps down",
    async (set) => {
      const primary = await set.primary();
      await set
        .directly(primary, (client) => client.db("admin").command({ replSetStepDown: 5, force: true }))
        .catch(() => undefined);
      return () => Promise.resolve();
    },
  ],
];

describe.skipIf(slot.skipped)("a primary that goes while handlers run", () => {
  for (const [what, lose] of losses) {
    it.each(ways)(
      `${what}: no attempt is counted, and every effect happens once (errors %s)`,
      async (_, wrap) => {
        const set = slot.server;
        await using client = await new MongoClient(set.url).connect();
        const database = `t_${uuidv7().replaceAll("-", "")}`;
        const store = createMongoStore({ client, database });
        await store.migrator.migrate();
        const effects = client.db(database).collection<Effect>("effects");
        await effects.insertOne({ _id: "none", n: 0 });
        const inHand = Promise.withResolvers<void>();
        let begun = 0;
        const bus = createSubscription();
        const inbox = createInbox<Record<string, number>, ClientSession>({ store, consumer: "c", maxAttempts: 1 });
        inbox.on("t", async (session, { id, payload }) => {
          try {
            await effects.insertOne({ _id: `${id}:first`, n: payload }, { session });
            if (++begun === MESSAGES) inHand.resolve();
            if (begun <= MESSAGES) await linger(payload, () => effects.findOne({ _id: "none" }, { session }));
            await effects.insertOne({ _id: `${id}:second`, n: payload }, { session });
          } catch (error) {
            throw wrap(error);
          }
        });
        await inbox.start(bus);
        const messages = Array.from({ length: MESSAGES }, (__, n) => ({
          id: uuidv7(),
          type: "t",
          body: String(n),
          headers: {},
        }));
        const seen: HandleResult["status"][] = [];
        const deliver = async (message: (typeof messages)[number]): Promise<void> => {
          // As a broker does: again and again until it is done, with a pause.
          for (let delivery = 1; delivery <= 60; delivery++) {
            const { status } = await bus.deliver(message);
            seen.push(status);
            if (status !== "unavailable") return;
            await sleep(250);
          }
        };
        const delivering = Promise.all(messages.map(deliver));
        await inHand.promise;
        const bringBack = await lose(set);
        await delivering;
        await bringBack();
        expect(seen.filter((status) => status === "done")).toHaveLength(MESSAGES);
        expect(seen.filter((status) => status !== "done" && status !== "unavailable")).toEqual([]);
        const receipts = await client.db(database).collection("inbox").find().toArray();
        expect(receipts.map(({ status, attempts, last_error }) => [status, attempts, last_error])).toEqual(
          messages.map(() => ["processed", 1, null]),
        );
        expect(await effects.countDocuments({ _id: { $ne: "none" } })).toBe(2 * MESSAGES);
        await set.primary();
      },
      120_000,
    );
  }
});
