import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createRedisPublisher, createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import type { AnyEvents, IncomingMessage } from "../../../src/core/message.ts";
import {
  createInbox,
  createOutbox,
  createRelay,
  defineEvents,
  listen,
  type Channels,
  type NewMessage,
  type Outbox,
  type Publisher,
  type Relay,
  type RelayEvent,
  type Store,
} from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { serverOrSkip, startMongodb, startRedis, until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { ORDER_SCHEMAS } from "../../support/order-schemas.ts";
import { redisClient } from "../../support/redis-clients.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

const mongodb = await serverOrSkip("MongoDB", () => startMongodb());
const redis = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(async () => {
  await mongodb.stop();
  await redis.stop();
});

/** Before and after a change that breaks. Both deployments read the same log. */
const created = { stream: "orders", schema: z.object({ n: z.number() }) };
const v1 = defineEvents({ created, paid: { stream: "orders", schema: z.object({ n: z.number() }) } });
const v2 = defineEvents({
  created: {
    stream: "orders",
    version: 2,
    schema: z.object({ n: z.number(), currency: z.string() }),
    upcast: { 1: (old: { n: number }) => ({ ...old, currency: "EUR" }) },
  },
  paid: { stream: "orders", schema: z.object({ n: z.number() }) },
});
type Deployed = "v1" | "v2";

/** What each handler saw: `deployment type key n currency`. */
type Seen = string[];

function heard<Name extends keyof Channels>(name: Name): Channels[Name][] {
  const told: Channels[Name][] = [];
  onTestFinished(listen(name, (event) => told.push(event)));
  return told;
}

/** One deployment: an inbox with its events, and the relay that feeds it. */
async function deploy(store: Store, which: Deployed, seen: Seen, way: "bus" | "stored") {
  const options = { store, consumer: "reader", mode: way === "stored" ? ("stored" as const) : ("inline" as const) };
  const note = (type: string, { key, payload }: IncomingMessage & { payload: object }) =>
    void seen.push([which, type, key, ...Object.values(payload)].join(" "));
  const inbox = which === "v1" ? createInbox({ ...options, events: v1 }) : createInbox({ ...options, events: v2 });
  inbox.on("created", async (_, message) => note("created", message));
  inbox.on("paid", async (_, message) => note("paid", message));
  const events: RelayEvent[] = [];
  const relays: Relay[] = [];
  const run = async (name: string, publisher: Publisher, streams: string[]) => {
    const onEvent = (event: RelayEvent) => void events.push(event);
    const relay = createRelay({ store, name, publisher, streams, onEvent, leaseMs: 2000, maxPollMs: 20 });
    relays.push(relay);
    await relay.start();
  };
  const bus = createInProcessBus();
  await inbox.start(bus);
  await run("to-reader", bus, ["orders"]);
  if (way === "stored") await run("local", inbox.storedPublisher(), ["inbox.reader"]);
  let stopped = false;
  const stop = async (): Promise<void> => {
    if (stopped) return;
    stopped = true;
    for (const relay of relays) await relay.stop();
    await inbox.stop();
  };
  onTestFinished(stop);
  return { events, stop };
}

async function openPostgres(): Promise<Store> {
  const database = await outboxDatabase();
  onTestFinished(() => database[Symbol.asyncDispose]());
  return database.store;
}

async function openMongodb(): Promise<Store> {
  const database = await mongoDatabase(mongodb.server.url);
  onTestFinished(() => database[Symbol.asyncDispose]());
  const store = createMongoStore({ client: database.client });
  await store.migrator.migrate();
  return store;
}

/** By a producer of that deployment. */
const enqueue = (store: Store, deployed: Deployed, messages: readonly object[]) =>
  store.ledger.transaction((tx) => {
    const outbox = createOutbox({ store, events: deployed === "v1" ? v1 : v2 }) as unknown as Outbox<
      AnyEvents,
      unknown
    >;
    return outbox.enqueue(tx, messages as NewMessage[]);
  });

const old = (key: string, n: number) => ({ type: "created", key, payload: { n } });
const fresh = (key: string, n: number) => ({ type: "created", key, payload: { n, currency: "CHF" } });

describe.each([
  ["PostgreSQL", !hasPostgres(), openPostgres],
  ["MongoDB", mongodb.skipped, openMongodb],
] as const)("contracts on %s", (_, skipped, open) => {
  describe.skipIf(skipped).each(["bus", "stored"] as const)("%s", (way) => {
    it("messages of version 1 are handled by a handler of version 2, at once with new ones", async () => {
      const store = await open();
      const seen: Seen = [];
      await enqueue(store, "v1", [old("a", 1), old("b", 2)]);
      await enqueue(store, "v2", [fresh("a", 3)]);
      await deploy(store, "v2", seen, way);
      await until(() => seen.length === 3, { what: "three messages" });
      expect(seen.filter((line) => line.includes(" a "))).toEqual(["v2 created a 1 EUR", "v2 created a 3 CHF"]);
      expect(seen).toContain("v2 created b 2 EUR");
    });

    it("newer ones wait with their keys while all others go on; the next deployment handles them in order", async () => {
      const store = await open();
      const seen: Seen = [];
      const newer = heard("txbox:inbox:newer_version");
      const before = await deploy(store, "v1", seen, way);
      // A producer of the new version is out already.
      await enqueue(store, "v1", [old("a", 1)]);
      const waiting = await enqueue(store, "v2", [fresh("a", 2), fresh("c", 1), { ...fresh("a", 3), key: undefined }]);
      await enqueue(store, "v1", [old("a", 4), ...Array.from({ length: 40 }, (_each, i) => old(`b${i % 8}`, i))]);
      await enqueue(store, "v1", [
        { type: "paid", key: "c", payload: { n: 9 } },
        { type: "paid", payload: { n: 8 } },
      ]);
      await until(() => seen.length === 42 && newer.length > 3, { what: "what goes on" });
      // Found out again, and still nothing of it is handled or counted.
      const tries = newer.length;
      await until(() => newer.length > tries, { what: "another try" });
      expect(seen.filter((line) => !line.startsWith("v1 created b")).toSorted()).toEqual([
        "v1 created a 1",
        "v1 paid  8",
      ]);
      expect(newer[0]).toEqual({
        type: "newer_version",
        consumer: "reader",
        id: expect.toSatisfy((id: string) => waiting.some((one) => one.id === id)),
        messageType: "created",
        version: 2,
        known: 1,
      });
      expect(before.events.filter(({ type }) => ["outage", "retry", "dead", "failed"].includes(type))).toEqual([]);
      expect(before.events.find(({ type }) => type === "route_out")).toMatchObject({
        route: "created after version 1",
        error: expect.stringContaining("created has version 2, and this process knows it up to version 1"),
      });
      await before.stop();

      const after = await deploy(store, "v2", seen, way);
      await until(() => seen.length === 47, { what: "what had waited", timeoutMs: 30_000 });
      const later = seen.slice(42);
      expect(later.filter((line) => line.includes(" a "))).toEqual(["v2 created a 2 CHF", "v2 created a 4 EUR"]);
      expect(later.filter((line) => line.includes(" c "))).toEqual(["v2 created c 1 CHF", "v2 paid c 9"]);
      expect(later).toContain("v2 created  3 CHF");
      expect(after.events.filter(({ type }) => ["outage", "retry", "dead", "failed"].includes(type))).toEqual([]);
      const relay = way === "stored" ? "local" : "to-reader";
      expect(await store.admin.dead({ relay })).toEqual([]);
      const found = await store.admin.receiptsOf([{ id: waiting[0]!.id, createdAt: new Date() }]);
      expect(found.map(({ status, attempts }) => [status, attempts])).toEqual([["processed", 1]]);
    });

    it("what cannot be handled is a dead letter at once, with the reason, and holds up no other key", async () => {
      const store = await open();
      const seen: Seen = [];
      const events = defineEvents({
        created: {
          stream: "orders",
          version: 2,
          schema: z.object({ n: z.number(), currency: z.string() }),
          upcast: {
            1: () => {
              throw new Error("there is no way");
            },
          },
        },
      });
      const options = { store, consumer: "reader", mode: way === "stored" ? ("stored" as const) : ("inline" as const) };
      const inbox = createInbox({ ...options, events });
      inbox.on("created", async (_tx, { key, payload: { n } }) => void seen.push(`${key} ${n}`));
      const bus = createInProcessBus();
      await inbox.start(bus);
      const relays = [createRelay({ store, name: "to-reader", publisher: bus, streams: ["orders"], maxPollMs: 20 })];
      if (way === "stored") {
        const publisher = inbox.storedPublisher();
        relays.push(createRelay({ store, name: "local", publisher, streams: ["inbox.reader"], maxPollMs: 20 }));
      }
      onTestFinished(async () => {
        for (const relay of relays) await relay.stop();
        await inbox.stop();
      });
      // Of a producer that knows nothing of the contract.
      const message = (key: string, payload: unknown, schemaVersion?: number | string): NewMessage => ({
        stream: "orders",
        type: "created",
        key,
        payload,
        headers: schemaVersion === undefined ? {} : { schemaVersion },
      });
      await store.ledger.transaction((tx) =>
        createOutbox({ store }).enqueue(tx as object, [
          message("wrong", { n: "1", currency: 2 }, 2),
          message("unnamed", { n: 1, currency: "EUR" }, "two"),
          message("thrown", { n: 1 }),
          message("fine", { n: 4, currency: "EUR" }, 2),
        ]),
      );
      for (const relay of relays) await relay.start();
      const relay = way === "stored" ? "local" : "to-reader";
      const letters = await until(
        async () => {
          const found = await store.admin.dead({ relay });
          return found.length === 3 && seen.length === 1 ? found : false;
        },
        { what: "dead letters" },
      );
      expect(seen).toEqual(["fine 4"]);
      const reasons = new Map(letters.map(({ key, errors }) => [key, errors.map(({ error }) => error)]));
      expect(letters.map(({ attempts }) => attempts)).toEqual([1, 1, 1]);
      expect(reasons.get("wrong")?.[0]).toMatch(
        /PermanentError: The payload of created \(version 2\) does not fit: payload.n: .*; payload.currency: /,
      );
      expect(reasons.get("unnamed")?.[0]).toMatch(/schemaVersion of created must be a whole number from 1, got "two"/);
      expect(reasons.get("thrown")?.[0]).toMatch(/The upcast of created from version 1 threw Error: there is no way/);
    });
  });
});

describe.skipIf(!hasPostgres()).each(ORDER_SCHEMAS)("wrong payloads with a schema of %s", (_, schema) => {
  const events = defineEvents({ order_created: { stream: "orders", schema } });
  const good = { orderId: "1", total: 2, at: "2026-01-02T03:04:05.000Z" };
  const bad = { ...good, total: "2" };

  it("are refused when they are enqueued: nothing is written, and the transaction goes on", async () => {
    await using database = await outboxDatabase();
    const outbox = createOutbox({ store: database.store, events });
    await inTransaction(database.pool, async (tx) => {
      await tx.query("create table mine (n int)");
      const wrong = { type: "order_created" as const, payload: bad as unknown as typeof good };
      await expect(outbox.enqueue(tx, wrong)).rejects.toMatchObject({
        code: "invalid_payload",
        issues: [{ path: ["total"] }],
      });
      await tx.query("insert into mine values (1)");
      await outbox.enqueue(tx, { type: "order_created", payload: good });
    });
    expect(await database.value("select count(*)::int from mine")).toBe(1);
    const [message, ...more] = await database.store.admin.find({ stream: "orders" });
    expect(more).toEqual([]);
    expect(message).toMatchObject({ type: "order_created", stream: "orders", headers: { schemaVersion: 1 } });
  });

  it("are a dead letter with the issues before the handler, which gets what the schema makes of the others", async () => {
    await using database = await outboxDatabase();
    const { store, pool } = database;
    const inbox = createInbox({ store, consumer: "reader", events });
    const got: unknown[] = [];
    inbox.on("order_created", async (_tx, { payload }) => void got.push(payload));
    const bus = createInProcessBus();
    await inbox.start(bus);
    const relay = createRelay({ store, name: "to-reader", publisher: bus, maxPollMs: 20 });
    const unchecked = createOutbox({ store });
    const message = { stream: "orders", type: "order_created" };
    await inTransaction(pool, (tx) =>
      unchecked.enqueue(
        tx,
        [bad, good].map((payload) => ({ ...message, payload })),
      ),
    );
    await relay.start();
    const [letter] = await until(
      async () => {
        const letters = await store.admin.dead({ relay: "to-reader" });
        return letters.length === 1 && got.length === 1 ? letters : false;
      },
      { what: "a dead letter" },
    );
    await relay.stop();
    await inbox.stop();
    expect(got).toEqual([{ ...good, at: new Date(good.at) }]);
    expect(letter).toMatchObject({ attempts: 1, headers: {} });
    expect(letter?.errors[0]?.error).toContain(
      "The payload of order_created (version 1) does not fit: payload.total: ",
    );
    expect(
      await database.query("select status, last_error like '%payload.total%' as says from txbox.receipt order by 1"),
    ).toEqual([
      { status: "failed", says: true },
      { status: "processed", says: null },
    ]);
  });
});

describe.skipIf(redis.skipped || !hasPostgres())("through a broker", () => {
  it("newer versions wait with their keys, and go to the consumer that knows them", async () => {
    const store = await openPostgres();
    const client = () => redisClient("ioredis", redis.server.url);
    const publisher = createRedisPublisher({ client: client() });
    const relay = createRelay({ store, name: "to-redis", publisher, streams: ["orders"], maxPollMs: 20 });
    await relay.start();
    onTestFinished(() => relay.stop());
    const seen: Seen = [];
    const newer = heard("txbox:inbox:newer_version");
    const consume = async (which: Deployed) => {
      const inbox =
        which === "v1"
          ? createInbox({ store, consumer: "reader", events: v1 })
          : createInbox({ store, consumer: "reader", events: v2 });
      inbox.on("created", async (_tx, { key, payload }) => {
        seen.push([which, key, ...Object.values(payload)].join(" "));
      });
      const dead: unknown[] = [];
      const onEvent = (event: { type: string }) => void (event.type === "dead" && dead.push(event));
      await inbox.start(
        createRedisSubscriber({ client: client(), streams: "orders", declare: true, member: "m", onEvent }),
      );
      onTestFinished(() => inbox.stop());
      return { dead, stop: () => inbox.stop() };
    };
    const before = await consume("v1");
    await enqueue(store, "v1", [old("a", 1)]);
    await enqueue(store, "v2", [fresh("a", 2)]);
    await enqueue(store, "v1", [old("a", 3), old("b", 1), old("b", 2)]);
    await until(() => seen.length === 3 && newer.length > 1, { what: "what goes on" });
    expect(seen.toSorted()).toEqual(["v1 a 1", "v1 b 1", "v1 b 2"]);
    await before.stop();
    const after = await consume("v2");
    await until(() => seen.length === 5, { what: "what had waited", timeoutMs: 30_000 });
    expect(seen.slice(3)).toEqual(["v2 a 2 CHF", "v2 a 3 EUR"]);
    expect([...before.dead, ...after.dead]).toEqual([]);
  });
});
