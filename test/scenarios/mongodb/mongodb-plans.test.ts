import { setTimeout as sleep } from "node:timers/promises";
import { MongoClient } from "mongodb";
import { afterAll, beforeAll, expect, it } from "vitest";
import { audit, createOutbox, createRelay, diagnose, PermanentError, type Publisher } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { bySource } from "../../support/by-source.ts";

/** Documents that are done; `TXBOX_TEST_DONE=1000000` for as many as the figures in the docs were taken with. */
const DONE = Number(process.env["TXBOX_TEST_DONE"] ?? 20_000);

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
}, 240_000);
afterAll(() => slot.stop());

type Command = Record<string, unknown>;

const SHAPES = ["find", "aggregate", "update", "findAndModify", "count", "delete"] as const;

/** What the driver adds, and an explain does not take. */
const ADDED = new Set([
  "lsid",
  "$clusterTime",
  "$db",
  "txnNumber",
  "autocommit",
  "startTransaction",
  "writeConcern",
  "readConcern",
  "ordered",
]);

function bareOf(command: Command): Command {
  return Object.fromEntries(Object.entries(command).filter(([name]) => !ADDED.has(name)));
}

/** The command with every value left out: those of one shape have one plan. */
function shapeOf(command: Command): string {
  return JSON.stringify(bareOf(command), (_, value: unknown) =>
    typeof value === "object" && value !== null && !(value instanceof Date) && !(value instanceof RegExp)
      ? Array.isArray(value)
        ? value.slice(0, 2)
        : value
      : typeof value,
  );
}

/** Every stage of the plans that an explain shows, however it nests them. */
function stagesOf(plan: unknown): string[] {
  if (typeof plan !== "object" || plan === null) return [];
  if (Array.isArray(plan)) return plan.flatMap(stagesOf);
  return Object.entries(plan).flatMap(([name, value]) => {
    if (name === "rejectedPlans" || name === "command") return [];
    return name === "stage" && typeof value === "string" ? [value] : stagesOf(value);
  });
}

const BY = ["polling", "stream"] as const;

it.for(BY)(
  `uses indexes for all it asks by %s, beside ${DONE} that are done`,
  { timeout: 300_000 },
  async (source, { skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    const db = database.client.db();
    const plain = createMongoStore({ client: database.client });
    await plain.migrator.migrate();
    const old = (n: number) => ({
      _id: `old-${n}` as never,
      stream: "s",
      event_type: "t",
      key: `k${n % 50}`,
      payload: { n },
      status: "done",
      published_at: new Date(),
      created_at: new Date(),
      next_retry_at: new Date(),
      attempts: 1,
      position: n,
      lane: n % 64,
      relay: "r",
    });
    for (let from = 0; from < DONE; from += 10_000) {
      const size = Math.min(10_000, DONE - from);
      await db.collection("outbox").insertMany(Array.from({ length: size }, (_, i) => old(from + i)));
    }

    const client = new MongoClient(database.url, { monitorCommands: true });
    const commands = new Map<string, Command>();
    client.on("commandStarted", ({ commandName, command }) => {
      if (!(SHAPES as readonly string[]).includes(commandName)) return;
      if (JSON.stringify(command["pipeline"] ?? []).includes("$changeStream")) return;
      const name = String(command[commandName]);
      if (["outbox", "outbox_dead", "outbox_sequences", "inbox"].includes(name)) {
        commands.set(shapeOf(command), command);
      }
    });
    try {
      const store = bySource(createMongoStore({ client }), source);
      const outbox = createOutbox({ store });
      // A relay that stops closes its publisher.
      const publishers = [createMemoryPublisher(), createMemoryPublisher()] as const;
      for (const publisher of publishers) {
        publisher.fail(({ type }) => (type === "later" ? new Error("later") : undefined));
        publisher.reject(({ type }) => (type === "never" ? new PermanentError("never") : undefined));
      }
      const run = (publisher: Publisher) =>
        createRelay({
          store,
          name: "r",
          publisher,
          maintenance: false,
          leaseMs: 1000,
          batchSize: 50,
          backoff: { baseMs: 100, maxMs: 100 },
          onDead: "block",
        });
      await client.withSession((session) =>
        session.withTransaction(async () => {
          const types = ["plain", "plain", "later", "never", "plain"];
          await outbox.enqueue(
            session,
            Array.from({ length: 300 }, (_, n) => ({
              stream: "s",
              type: types[n % 5] ?? "plain",
              payload: { n },
              ...(n % 3 === 0 ? {} : { key: `k${n % 20}` }),
              ...(n % 7 === 0 ? { id: `chosen-${n}` } : {}),
              ...(n % 11 === 0 ? { deliverAt: new Date(Date.now() + 300) } : {}),
            })),
          );
          await outbox.lockKey(session, { stream: "s", key: "k1" });
          await outbox.cancel(session, "chosen-77");
        }),
      );
      const [first, second] = [run(publishers[0]), run(publishers[1])];
      await first.start();
      await second.start();
      await until(async () => (await store.admin.dead({})).length > 10, { what: "dead letters" });
      for (const publisher of publishers) publisher.heal();
      await sleep(500);
      await store.admin.requeue({ type: "never" });
      await store.admin.requeue({ all: true, limit: 2 });
      await first.stop();
      await until(
        async () => {
          await store.admin.requeue({ all: true });
          return (await store.admin.relays())[0]?.pending === 0;
        },
        { what: "delivery", timeoutMs: 60_000 },
      );
      await second.stop();
      await store.maintenance.run();
      await store.admin.find({ key: "k1" });
      await store.admin.find({ aggregateId: "a" });
      await store.admin.find({ correlationId: "c" });
      await store.admin.find({ id: "chosen-7" });
      await store.ledger.keepScope?.("c", "source");
      const since = new Date(Date.now() - 3_600_000);
      const report = await audit({ from: store, to: store, consumer: "c", since, graceMs: 0 });
      expect(report.checked).toBeGreaterThan(DONE);
      await diagnose(store);

      const scans: string[] = [];
      for (const command of commands.values()) {
        const bare = bareOf(command);
        if (countsFailedReceipts(bare)) continue;
        const updates = bare["updates"] as Command[] | undefined;
        const single = updates === undefined ? [bare] : updates.map((one) => ({ ...bare, updates: [one] }));
        for (const explained of single.slice(0, 3)) {
          const plan = await db.command({ explain: explained, verbosity: "queryPlanner" });
          const byTime = (explained as { hint?: unknown }).hint === "txbox_done";
          if (stagesOf(plan).includes("COLLSCAN") || (byTime && stagesOf(plan).includes("SORT")))
            scans.push(JSON.stringify(explained).slice(0, 400));
        }
      }
      expect(commands.size).toBeGreaterThan(20);
      expect(scans).toEqual([]);
    } finally {
      await client.close();
    }
  },
);

/** It has no index, and is asked only while there are no more than 100,000 receipts. */
function countsFailedReceipts({ aggregate, pipeline }: Command): boolean {
  return aggregate === "inbox" && JSON.stringify(pipeline).startsWith('[{"$match":{"status":"failed"}},{"$group"');
}
