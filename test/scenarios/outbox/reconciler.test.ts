import type { MongoClient } from "mongodb";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOutbox, createReconciler, createRelay, type ReconcilerEvent, type Store } from "../../../src/index.ts";
import { createMongoStore, WITHOUT_TRANSACTION } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { INDEX_URL, projectFolder, runCli } from "../../support/run-cli.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

interface Head {
  page: string;
  revision: number;
}

const toMessage = ({ page, revision }: Head) => ({
  id: `${page}:${revision}`,
  stream: "wiki",
  type: "PageRevisionCreated",
  key: page,
  payload: { page, revision },
});

const heads = (...pages: string[]): Head[] => pages.map((page) => ({ page, revision: 1 }));

/** What a relay delivers, by id. */
async function delivered(store: Store): Promise<string[]> {
  const publisher = createMemoryPublisher();
  await createRelay({ store, name: "r", publisher, maintenance: false }).drainOnce();
  return publisher.published.map(({ id }) => id).toSorted();
}

/** The same on every store. */
function reconciles(open: () => Promise<{ store: Store } & AsyncDisposable>): void {
  it("enqueues what is missing once, however many processes run it and how often", async () => {
    await using opened = await open();
    const { store } = opened;
    const missing = heads("a", "b", "c", "d", "e");
    const reconciler = createReconciler({ store, find: () => missing, toMessage, batchSize: 2 });
    expect(await reconciler.reconcileOnce()).toEqual({ found: 5, enqueued: 5, known: 0 });
    const others = [1, 2, 3].map(() => createReconciler({ store, find: () => [...missing, ...heads("f")], toMessage }));
    const results = await Promise.all(others.map((other) => other.reconcileOnce()));
    expect(results.reduce((sum, { enqueued }) => sum + enqueued, 0)).toBe(1);
    expect(await delivered(store)).toEqual(["a:1", "b:1", "c:1", "d:1", "e:1", "f:1"]);
    expect(await reconciler.reconcileOnce()).toEqual({ found: 5, enqueued: 0, known: 5 });
    expect(await delivered(store)).toEqual([]);
  });

  it("runs on a schedule, through a query that fails, and reads from a cursor", async () => {
    await using opened = await open();
    const { store } = opened;
    const events: ReconcilerEvent[] = [];
    let runs = 0;
    const reconciler = createReconciler({
      store,
      async *find(): AsyncGenerator<Head> {
        runs++;
        if (runs === 2) throw new Error("the query failed");
        yield* heads(`run-${runs}`, `run-${runs}`);
      },
      toMessage,
      everyMs: 20,
      onEvent: (event) => events.push(event),
    });
    reconciler.start();
    await until(() => runs >= 3 && events.length >= 3, { what: "three runs" });
    await reconciler.stop();
    const after = runs;
    expect(events[0]).toMatchObject({ type: "reconciled", found: 2, enqueued: 1 });
    expect(events[1]).toMatchObject({ type: "failed", error: "Error: the query failed" });
    expect(await delivered(store)).toEqual(expect.arrayContaining(["run-1:1", "run-3:1"]));
    expect(runs).toBe(after);
  });

  it("refuses a message whose id does not follow from its head", async () => {
    await using opened = await open();
    const bad = createReconciler({
      store: opened.store,
      find: () => heads("a"),
      toMessage: () => ({ stream: "s", type: "t", payload: 1 }),
    });
    await expect(bad.reconcileOnce()).rejects.toMatchObject({ code: "invalid_message", field: "id" });
  });
}

describe.skipIf(!hasPostgres())("a reconciler on PostgreSQL", () => {
  reconciles(async () => {
    const database = await outboxDatabase();
    return { store: database.store, [Symbol.asyncDispose]: () => database.close() };
  });
});

describe("a reconciler on MongoDB", () => {
  let replicaSet: ServerSlot<MongodbServer>;
  let standalone: ServerSlot<MongodbServer>;

  beforeAll(async () => {
    replicaSet = await serverOrSkip("MongoDB", () => startMongodb());
    standalone = await serverOrSkip("MongoDB", () => startMongodb({ standalone: true }));
  }, 240_000);
  afterAll(async () => {
    await replicaSet.stop();
    await standalone.stop();
  });

  const openOn = async (slot: () => ServerSlot<MongodbServer>, make: (client: MongoClient) => Store) => {
    const database = await mongoDatabase(slot().server.url);
    const store = make(database.client);
    await store.migrator.migrate();
    return { store, [Symbol.asyncDispose]: () => database[Symbol.asyncDispose]() };
  };

  describe("with transactions", () => {
    reconciles(() =>
      openOn(
        () => replicaSet,
        (client) => createMongoStore({ client }),
      ),
    );
  });

  describe("without transactions, on a standalone server", () => {
    reconciles(() =>
      openOn(
        () => standalone,
        (client) => createMongoStore({ client, transactions: false }),
      ),
    );

    it("finds by the application's own ids what was enqueued in time", async () => {
      await using database = await mongoDatabase(standalone.server.url);
      const store = createMongoStore({ client: database.client, transactions: false });
      await store.migrator.migrate();
      const outbox = createOutbox({ store });
      await outbox.enqueue(WITHOUT_TRANSACTION, toMessage({ page: "a", revision: 1 }));
      const reconciler = createReconciler({ store, find: () => heads("a", "b"), toMessage });
      expect(await reconciler.reconcileOnce()).toEqual({ found: 2, enqueued: 1, known: 1 });
    });
  });

  it("runs from the command line", async () => {
    await using database = await mongoDatabase(replicaSet.server.url);
    using project = projectFolder({
      "txbox.config.ts": `
        import { defineConfig } from ${JSON.stringify(INDEX_URL)};
        export default defineConfig({
          database: { url: ${JSON.stringify(database.url)} },
          reconcilers: {
            pages: {
              find: () => [{ page: "a" }, { page: "b" }],
              toMessage: ({ page }) => ({ id: page + ":1", stream: "wiki", type: "t", key: page, payload: page }),
            },
          },
        });`,
    });
    const cli = (...args: string[]) => runCli(args, { cwd: project.path });
    expect((await cli("migrate")).code).toBe(0);
    const first = await cli("reconcile", "--json");
    expect(first.json).toEqual({ reconciled: [{ name: "pages", found: 2, enqueued: 2, known: 0 }] });
    const second = await cli("reconcile", "pages");
    expect(second.stdout).toMatch(/pages +2 +0 +2/);
    expect(await cli("reconcile", "page")).toMatchObject({ code: 2 });
    const published = await cli("relay", "look", "--publisher", "stdout", "--once");
    expect(published.stdout.trim().split("\n")).toHaveLength(2);
  });
});
