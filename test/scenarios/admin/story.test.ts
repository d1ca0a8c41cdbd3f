import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { readStory, type Story, type StoryMessage } from "../../../src/admin/index.ts";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createInbox, createOutbox, createRelay, type Publisher, type Store } from "../../../src/index.ts";
import { createMongoStore, type MongoStore } from "../../../src/stores/mongodb/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type MongoDatabase, mongoDatabase } from "../../support/mongodb-database.ts";
import { startTcpProxy } from "../../support/tcp-proxy.ts";
import { openPool, outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

type RelayStore = Parameters<typeof createRelay>[0]["store"] & Pick<Store, "admin">;

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({}));
}, 240_000);
afterAll(() => slot.stop());

describe.skipIf(!hasPostgres())("the story of an order in PostgreSQL and its payment in MongoDB", () => {
  let orders: OutboxDatabase;
  let mongo: MongoDatabase;
  let payments: MongoStore;
  let stores: Record<string, Pick<Store, "admin">>;

  beforeEach(async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    orders = await outboxDatabase();
    mongo = await mongoDatabase(slot.server.url);
    payments = createMongoStore({ client: mongo.client });
    await payments.migrator.migrate();
    stores = { orders: orders.store, payments };
  });
  afterEach(async () => {
    await orders?.[Symbol.asyncDispose]();
    await mongo?.[Symbol.asyncDispose]();
  });

  async function placeOrder(id: string): Promise<void> {
    const client = await orders.pool.connect();
    await client.query("begin");
    await orders.outbox.enqueue(client, {
      id,
      stream: "orders",
      type: "order_placed",
      aggregateType: "order",
      aggregateId: "4711",
      payload: { total: 12 },
    });
    await client.query("commit");
    client.release();
  }

  /** Drains until everything of the relay is through. */
  async function relayed(store: RelayStore, name: string, publisher: Publisher): Promise<void> {
    const backoff = { baseMs: 10, maxMs: 20 };
    const relay = createRelay({ store, name, publisher, maintenance: false, backoff });
    await until(
      async () => {
        await relay.drainOnce();
        return (await store.admin.search({ relay: name, status: "retrying" })).messages.length === 0;
      },
      { what: `the relay ${name}` },
    );
  }

  /** What the payment service does with an order: it fails at first, then enqueues two messages. */
  function paymentInbox() {
    const outbox = createOutbox({ store: payments });
    let tries = 0;
    const inbox = createInbox({ store: payments, consumer: "payments" });
    inbox.on("order_placed", async (tx, message) => {
      if (tries++ === 0) throw new Error("the bank is busy");
      await outbox.enqueue(tx, [
        { stream: "payments", type: "payment_taken", key: "4711", payload: { of: message.id } },
        { stream: "mail", type: "receipt_wanted", payload: {} },
      ]);
    });
    return inbox;
  }

  const outline = ({ places, caused }: StoryMessage): unknown => [
    `${places[0]?.type} in ${places[0]?.store}`,
    ...caused.map(outline),
  ];

  async function played(): Promise<void> {
    await placeOrder("order-1");
    const bus = createInProcessBus();
    const inbox = paymentInbox();
    await inbox.start(bus);
    await relayed(orders.store, "to-payments", bus);
    // The shop hears of the payment and marks the order as paid.
    const back = createInProcessBus();
    const shop = createInbox({ store: orders.store, consumer: "shop" });
    shop.on("payment_taken", async (tx) => {
      await orders.outbox.enqueue(tx, { stream: "orders", type: "order_paid", payload: {}, key: "4711" });
    });
    await shop.start(back);
    await relayed(payments, "to-shop", back);
    await Promise.all([inbox.stop(), shop.stop()]);
  }

  it("is one tree: what each relay did, what each consumer knows, and what came of it", async () => {
    await played();
    const story = await readStory(stores, "order-1");
    expect(story).toMatchObject({ count: 4, cut: false, causes: [], unreachable: [] });
    expect(outline(story.message)).toEqual([
      "order_placed in orders",
      ["payment_taken in payments", ["order_paid in orders"]],
      ["receipt_wanted in payments"],
    ]);
    const { places, receipts, caused } = story.message;
    const delivered = [{ relay: "to-payments", status: "published", attempts: 2 }];
    const order = { id: "order-1", store: "orders", aggregateId: "4711", body: '{"total":12}', deliveries: delivered };
    expect(places).toMatchObject([order]);
    expect(places[0]?.deliveries[0]?.lastError).toMatch(/the bank is busy/);
    expect(receipts).toMatchObject([{ store: "payments", consumer: "payments", status: "processed", attempts: 2 }]);
    expect(receipts[0]?.processedAt).toBeInstanceOf(Date);
    const [payment, mail] = caused as [StoryMessage, StoryMessage];
    expect(payment.receipts).toMatchObject([{ store: "orders", consumer: "shop", status: "processed" }]);
    expect(payment.places[0]).toMatchObject({ deliveries: [{ relay: "to-shop", status: "published" }] });
    // The shop has no handler for it, so there is no receipt.
    expect(mail.receipts).toEqual([]);
    expect(payment.caused[0]?.places[0]?.deliveries).toMatchObject([{ relay: "to-payments", status: "pending" }]);
  });

  it("is told from any message: what came of it below, what it came of above", async () => {
    await played();
    const { message } = await readStory(stores, "order-1");
    const paid = message.caused[0]!.caused[0]!;
    const story = await readStory(stores, paid.id);
    expect(story.causes.map(({ places }) => places[0]?.type)).toEqual(["order_placed", "payment_taken"]);
    expect(story.causes[0]?.receipts).toMatchObject([{ consumer: "payments", status: "processed" }]);
    expect([story.count, story.message.id, story.message.caused]).toEqual([1, paid.id, []]);
  });

  it("names a store that is down, and tells the rest", async () => {
    await played();
    const gone = createMongoStore({ client: mongo.client });
    const admin = new Proxy(gone.admin, {
      get: () => () => Promise.reject(new Error("mongodb://u:secret@host: down")),
    });
    const story = await readStory({ ...stores, payments: { admin } }, "order-1");
    expect(story.unreachable).toEqual([{ store: "payments", error: expect.stringMatching(/down|…/) }]);
    expect(JSON.stringify(story.unreachable)).not.toContain("secret");
    expect(outline(story.message)).toEqual(["order_placed in orders"]);
    await orders.close();
    const nothing = await readStory({ orders: orders.store }, "order-1");
    expect([nothing.message.places, nothing.unreachable.map(({ store }) => store)]).toEqual([[], ["orders"]]);
  });

  it("does not wait for a server that never answers", { timeout: 60_000 }, async () => {
    await played();
    const url = new URL(orders.url);
    const proxy = await startTcpProxy(Number(url.port));
    url.port = String(proxy.port);
    const pool = openPool(url.href, 2);
    try {
      const store = createPostgresStore({ client: pool });
      expect((await store.admin.search({ id: "order-1" })).messages).toHaveLength(1);
      proxy.mute();
      const startedAt = performance.now();
      const story = await readStory({ orders: store, payments }, "order-1");
      expect(performance.now() - startedAt).toBeLessThan(15_000);
      expect(story.unreachable).toEqual([{ store: "orders", error: expect.stringMatching(/within 10 s/) }]);
      // What the other store knows of it is still told.
      expect(story.message.receipts).toMatchObject([{ store: "payments", consumer: "payments", status: "processed" }]);
      expect(story.message.caused.map(({ places }) => places[0]?.type)).toEqual(["payment_taken", "receipt_wanted"]);
    } finally {
      proxy.cut();
      await proxy.close();
      await pool.end();
    }
  });

  it("counts a database under two names once", async () => {
    await played();
    const twice = { ...stores, again: orders.store, "payments too": payments };
    const [one, two] = [await readStory(stores, "order-1"), await readStory(twice, "order-1")];
    const shape = (story: Story) => [story.count, outline(story.message), story.message.receipts.length];
    expect(shape(two)).toEqual(shape(one));
    expect(two.message.places).toHaveLength(1);
  });

  it("shows what an inbox has stored as a place of the same message", async () => {
    const bus = createInProcessBus();
    const inbox = createInbox({ store: payments, consumer: "payments", mode: "stored" });
    inbox.on("order_placed", () => Promise.reject(new Error("not yet")));
    await inbox.start(bus);
    await placeOrder("order-2");
    await relayed(orders.store, "to-payments", bus);
    const stored = createRelay({
      store: payments,
      name: "stored",
      streams: ["inbox.payments"],
      publisher: inbox.storedPublisher(),
      maintenance: false,
    });
    await stored.drainOnce();
    await inbox.stop();
    const { message } = await readStory(stores, "order-2");
    expect(message.places.map(({ store, stream }) => [store, stream])).toEqual([
      ["orders", "orders"],
      ["payments", "inbox.payments"],
    ]);
    expect(message.places[1]?.deliveries).toMatchObject([{ relay: "stored", status: "retrying", attempts: 1 }]);
    expect(message.places[1]?.deliveries[0]?.errors[0]?.error).toMatch(/not yet/);
    expect(message.receipts).toMatchObject([{ consumer: "payments", status: "received" }]);
  });

  it("tells of a message that is in no store by its receipts and by what came of it", async () => {
    const inbox = paymentInbox();
    const incoming = { id: "from-elsewhere", type: "order_placed", body: "{}", headers: {} };
    await expect(inbox.handle(incoming)).rejects.toThrow("the bank is busy");
    expect(await inbox.handle(incoming)).toBe("processed");
    const story = await readStory(stores, "from-elsewhere");
    expect(story.message.places).toEqual([]);
    expect(story.message.receipts).toMatchObject([{ consumer: "payments", status: "processed" }]);
    expect(outline(story.message)).toEqual([
      "undefined in undefined",
      ["payment_taken in payments"],
      ["receipt_wanted in payments"],
    ]);
    const unknown = await readStory(stores, "never heard of");
    expect(unknown).toMatchObject({ count: 1, cut: false, message: { places: [], receipts: [], caused: [] } });
  });

  it("ends loops of causes, and is cut at a number of messages", async () => {
    const headers = (causationId: string) => ({ correlationId: "c", causationId });
    const client = await orders.pool.connect();
    await client.query("begin");
    const message = { stream: "s", type: "t", payload: 1 };
    await orders.outbox.enqueue(client, [
      { ...message, id: "a", headers: headers("c3") },
      { ...message, id: "b", headers: headers("a") },
      { ...message, id: "c3", headers: headers("b") },
      { ...message, id: "self", headers: headers("self") },
      { ...message, id: "odd", headers: { correlationId: "c", causationId: { $gt: "" } } as never },
      { ...message, id: "long", headers: { correlationId: "c", causationId: "x".repeat(5000) } },
      { ...message, id: "nul", headers: { correlationId: "c", causationId: "a\uD800" } },
      ...Array.from({ length: 30 }, (_, i) => ({ ...message, id: `child-${i}`, headers: headers("b") })),
    ]);
    await client.query("commit");
    client.release();
    const story = await readStory(stores, "a");
    expect(story.causes.map(({ id }) => id)).toEqual(["b", "c3"]);
    expect([story.count, story.cut]).toEqual([33, false]);
    for (const id of ["self", "odd", "long", "nul"]) {
      const told = await readStory(stores, id);
      expect([told.message.caused, told.causes, told.count]).toEqual([[], [], 1]);
    }
    const short = await readStory(stores, "a", { most: 10 });
    expect(short.cut).toBe(true);
    expect(short.count).toBeLessThanOrEqual(10);
  });

  it("tells each relay apart, and a message that is scheduled", async () => {
    await placeOrder("order-3");
    await relayed(orders.store, "one", createMemoryPublisher());
    const failing = createMemoryPublisher();
    failing.fail(() => new Error("refused"));
    await createRelay({ store: orders.store, name: "two", publisher: failing, maintenance: false }).drainOnce();
    const { message } = await readStory(stores, "order-3");
    expect(message.places[0]?.deliveries).toMatchObject([
      { relay: "one", status: "published", attempts: 1, errors: [] },
      { relay: "two", status: "retrying", attempts: 1, errors: [{ error: expect.stringMatching(/refused/) }] },
    ]);
    const client = await orders.pool.connect();
    await client.query("begin");
    const deliverAt = new Date(Date.now() + 3_600_000);
    await orders.outbox.enqueue(client, { id: "later", stream: "s", type: "t", payload: 1, deliverAt });
    await client.query("commit");
    client.release();
    const later = (await readStory(stores, "later")).message.places[0];
    expect(later).toMatchObject({ position: null, deliveries: [{ relay: null, status: "scheduled", deliverAt }] });
  });

  it.each<[unknown, unknown, object, RegExp]>([
    [{}, "a", {}, /stores/],
    [null, "a", {}, /stores/],
    [{ orders: {} }, "a", {}, /stores/],
    [undefined, "", {}, /id/],
    [undefined, { $gt: "" }, {}, /id/],
    [undefined, "a", { most: 0 }, /most/],
    [undefined, "a", { moist: 5 }, /most/],
    [undefined, "x".repeat(5000), {}, /id/],
  ])("refuses %o, %o, %o", async (given, id, options, what) => {
    const error = expect.objectContaining({ code: "invalid_option", message: expect.stringMatching(what) });
    await expect(readStory((given === undefined ? stores : given) as never, id as never, options)).rejects.toEqual(
      error,
    );
  });
});
