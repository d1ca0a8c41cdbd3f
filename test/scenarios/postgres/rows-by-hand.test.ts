import { randomBytes } from "node:crypto";
import type pg from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { MIGRATIONS } from "../../../src/stores/postgres/migrations/index.ts";
import { databaseOf } from "../../../src/stores/postgres/postgres-client.ts";
import { createMigrator } from "../../../src/stores/postgres/postgres-migrator.ts";
import { postgresNames } from "../../../src/stores/postgres/postgres-names.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { openDriver, type Driver, type DriverName } from "../../support/postgres-drivers.ts";
import { openPool, outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { upTo } from "../support/recording-publisher.ts";

const CHECK_VIOLATION = "23514";
const BEFORE_THE_CHECKS = MIGRATIONS.filter(({ version }) => version < 7);

type Columns = Record<string, string | number | null>;

const long = (): string => randomBytes(10_000).toString("hex");
/** What an outbox never writes, by what is odd about it. All have a payload that could be published unless it says so. */
const ODD: Readonly<Record<string, () => Columns>> = {
  "lane 999": () => ({ lane: 999 }),
  "lane -1": () => ({ lane: -1 }),
  "lane 999 with a key": () => ({ lane: 999, key: "odd" }),
  "no payload": () => ({ payload: null }),
  "no payload, said to be large": () => ({ payload: null, size: 2 ** 31 - 1 }),
  "no payload, with a key": () => ({ payload: null, key: "odd" }),
  "headers that are a list": () => ({ headers: "[1]" }),
  "headers that are a text": () => ({ headers: '"x"' }),
  "headers that are null": () => ({ headers: "null" }),
  "a content type that is a number": () => ({ headers: '{"contentType":1}' }),
  "a path of causes that is none": () => ({ headers: '{"causationPath":{"a":1}}' }),
  "headers a thousand levels deep": () => ({ headers: `${'{"a":'.repeat(1000)}1${"}".repeat(1000)}` }),
  "size -5": () => ({ size: -5 }),
  "size of 2 GB": () => ({ size: 2 ** 31 - 1 }),
  "an empty stream": () => ({ stream: "" }),
  "an empty type": () => ({ type: "" }),
  "an empty key": () => ({ key: "" }),
  "a long stream": () => ({ stream: long() }),
  "a long type": () => ({ type: long() }),
  "a long key": () => ({ key: long() }),
  "a long stream and key": () => ({ stream: long(), key: long() }),
  "a long aggregate": () => ({ aggregate_type: long(), aggregate_id: long() }),
  "a long correlation": () => ({ correlation_id: long() }),
};
const ODD_TIMES: Readonly<Record<string, () => Columns>> = {
  "-infinity": () => ({ deliver_at: "-infinity" }),
  infinity: () => ({ deliver_at: "infinity" }),
  "the year 200000": () => ({ deliver_at: "200000-01-01" }),
};
/** What the check of scheduled messages lets through. */
const ALLOWED = /^(?:a long (?:aggregate|correlation)|size of 2 GB|a content|a path|headers a thousand)/;
const UNREADABLE = /^(?:no payload|headers that are (?:a|null)|a content type|a path)/;

describe.skipIf(!hasPostgres())("rows that a writer's role inserts by hand", () => {
  const role = `writer_${process.pid}`;
  let database: OutboxDatabase;
  let writer: pg.Pool;
  let drivers: Driver[];
  let relays: Relay[];
  let errors: string[];
  /** The ids of what went out, and the numbers of good ones. */
  let sent: string[];
  let good: number[];
  let rule: (message: Message) => PublishResult | undefined;

  beforeEach(async () => {
    [drivers, relays, errors, sent, good, rule] = [[], [], [], [], [], () => undefined];
  });
  afterEach(async () => {
    for (const relay of relays) await relay.stop();
    for (const driver of drivers) await driver.close();
    await writer.end();
    await database.query(`drop owned by ${role}; drop role ${role}`);
    await database[Symbol.asyncDispose]();
  });

  /** As a database of an earlier version, if it should be. */
  async function open(migrations = MIGRATIONS): Promise<void> {
    if (migrations === MIGRATIONS) {
      database = await outboxDatabase();
    } else {
      const empty = await testDatabase();
      const pool = openPool(empty.url, 1);
      const names = postgresNames({ schema: "txbox", tablePrefix: "" });
      await createMigrator({ database: databaseOf(pool), names, migrations }).migrate();
      await pool.end();
      const opened = await outboxDatabase({ url: empty.url });
      database = {
        ...opened,
        async [Symbol.asyncDispose]() {
          await opened[Symbol.asyncDispose]();
          await empty.drop();
        },
      };
    }
    await database.query(`create role ${role} login`);
    const grants = database.store.grants({ writer: role }).split("\n");
    // What a later migration adds is not there yet.
    const known = grants.filter((line) => migrations === undefined || !/_v1|lane_of/.test(line));
    await database.query(known.join("\n"));
    const url = new URL(database.url);
    url.username = role;
    writer = openPool(url.href, 1);
  }

  async function insert(table: string, id: string, odd: Columns): Promise<void> {
    const payload = JSON.stringify({ key: "odd", n: 1 });
    const row: Columns = { id, size: 20, lane: 1, stream: "orders", type: "changed", payload, ...odd };
    if (table === "scheduled") row["deliver_at"] ??= new Date(Date.now() - 1000).toISOString();
    const columns = Object.keys(row);
    const values = columns.map((_, i) => `$${i + 1}`);
    await writer.query(
      `insert into txbox.${table} (${columns.join(", ")}) values (${values.join(", ")})`,
      Object.values(row),
    );
  }

  async function startRelay(driverName: DriverName): Promise<void> {
    const driver = openDriver(driverName, database.url);
    drivers.push(driver);
    const relay = createRelay({
      store: createPostgresStore({ client: driver.client as pg.Pool }),
      name: "orders",
      leaseMs: 1500,
      maintenance: false,
      backoff: { baseMs: 100, maxMs: 100 },
      maxAttempts: 1000,
      publisher: {
        keepsKeyOrder: true,
        // As careless as a publisher can be: what it cannot read makes it throw.
        publish: async (messages) => {
          const read = messages.map((message) => {
            void message.headers.contentType?.startsWith("x");
            void message.headers.causationPath?.map(String);
            return { message, ...(JSON.parse(String(message.body)) as { key: string; n: number }) };
          });
          return read.map(({ message, key, n }) => {
            const result = rule(message);
            if (result !== undefined) return result;
            if (key === "good") good.push(n);
            else sent.push(message.id);
            return { status: "published" };
          });
        },
      },
      onEvent: (event) => {
        if (event.type === "store_error" || event.type === "outage") errors.push(event.error);
      },
    });
    relays.push(relay);
    await relay.start();
  }

  const deadIds = async (): Promise<string[]> => (await database.store.admin.dead({ limit: 1000 })).map(({ id }) => id);
  const arrived = (count: number) =>
    until(() => new Set(good).size === count, {
      what: `${count} good messages (${errors[0] ?? "no error"})`,
      timeoutMs: 60_000,
    });

  it.each(["node-postgres", "postgres.js"] as const)(
    "into the log are published or become dead letters, and hold up none of the good ones: %s",
    { timeout: 90_000 },
    async (driver) => {
      await open();
      const names = Object.keys(ODD);
      for (const [i, name] of names.entries()) {
        await database.enqueue(series("good", 1, i + 1));
        await insert("message", name, ODD[name]!());
      }
      await database.enqueue(series("good", 1, names.length + 1));
      await startRelay(driver);
      await arrived(names.length + 1);
      expect(good).toEqual(upTo(names.length + 1));
      const unreadable = names.filter((name) => UNREADABLE.test(name)).toSorted();
      await until(() => sent.length === names.length - unreadable.length, { what: "the odd ones" });
      await until(async () => (await deadIds()).length === unreadable.length, { what: "dead letters" });
      expect((await deadIds()).toSorted()).toEqual(unreadable);
      expect(await database.store.admin.dead({ id: "no payload" })).toMatchObject([
        { lastError: expect.stringMatching(/payload and body are null/), attempts: 1 },
      ]);
      expect(errors).toEqual([]);
    },
  );

  it(
    "into the log wait, die, are requeued and go out as others do, between two relays",
    { timeout: 90_000 },
    async () => {
      await open();
      rule = ({ key, id }) =>
        id in ODD || key === "odd" ? { status: "failed", error: new Error("not yet") } : undefined;
      await startRelay("node-postgres");
      await startRelay("node-postgres");
      const lanes = async () => (await database.store.admin.relays())[0]!.lanes.length;
      await until(async () => (await lanes()) === 2, { what: "lanes of both" });
      const readable = Object.keys(ODD).filter((name) => !UNREADABLE.test(name));
      for (const [i, name] of readable.entries()) {
        await database.enqueue(series("good", 1, i + 1));
        await insert("message", name, ODD[name]!());
      }
      await arrived(readable.length);
      await until(async () => (await database.store.admin.relays())[0]!.parked === readable.length, {
        what: "parked ones",
      });
      rule = ({ id }) => (id in ODD ? { status: "rejected", error: new Error("never") } : undefined);
      await until(async () => (await deadIds()).length === readable.length, { what: "dead letters" });
      rule = () => undefined;
      expect(await database.store.admin.requeue({ all: true })).toBe(readable.length);
      await until(() => sent.length === readable.length, { what: "requeued ones", timeoutMs: 60_000 });
      expect(sent.toSorted()).toEqual(readable.toSorted());
      expect(errors).toEqual([]);
    },
  );

  it("into the scheduled ones before there was a check stop no relay", { timeout: 90_000 }, async () => {
    await open(BEFORE_THE_CHECKS);
    const all = { ...ODD, ...ODD_TIMES };
    for (const [name, odd] of Object.entries(all)) await insert("scheduled", name, odd());
    expect((await database.store.migrator.migrate()).map(({ version }) => version)).toContain(7);
    await startRelay("node-postgres");
    await insert("scheduled", "good", { payload: JSON.stringify({ key: "good", n: 1 }) });
    await arrived(1);
    const never = ["infinity", "the year 200000"];
    const unreadable = Object.keys(all).filter((name) => UNREADABLE.test(name));
    await until(() => sent.length === Object.keys(all).length - unreadable.length - never.length, {
      what: "the odd ones",
    });
    await until(async () => (await deadIds()).length === unreadable.length, { what: "dead letters" });
    for (const id of never)
      expect(await database.store.admin.find({ id })).toMatchObject([
        { status: "scheduled", deliverAt: expect.any(Date) },
      ]);
    expect(errors).toEqual([]);
  });

  it("into the scheduled ones are refused, unless they do no harm or become dead letters", async () => {
    await open();
    const all = { ...ODD, ...ODD_TIMES };
    const codes: Record<string, unknown> = {};
    for (const [name, odd] of Object.entries(all))
      codes[name] = await insert("scheduled", name, odd()).catch((error: { code: string }) => error.code);
    const names = Object.keys(all);
    expect(codes).toEqual(
      Object.fromEntries(names.map((name) => [name, ALLOWED.test(name) ? undefined : CHECK_VIOLATION])),
    );
  });
});
