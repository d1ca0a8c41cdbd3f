import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { TxboxError } from "../../../src/core/errors.ts";
import type { NewMessage } from "../../../src/core/message.ts";
import { uuidv7Time } from "../../../src/core/uuid.ts";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createInbox, defineEvents } from "../../../src/index.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

const ENQUEUE = `select txbox.enqueue_v1(stream => $1, type => $2, payload => $3::text, key => $4, aggregate_type => $5,
  aggregate_id => $6, headers => $7, id => $8, deliver_at => $9) as id`;
const COLUMNS =
  "stream, type, key, aggregate_type, aggregate_id, correlation_id, headers::jsonb, payload::text, encode(body, 'hex') as body";
const RELAY = `role_${process.pid}`;

type Client = Pick<pg.ClientBase, "query">;

/** The call in SQL that stands for one of the outbox. */
async function enqueueInSql(client: Client, message: NewMessage): Promise<string | null> {
  const { stream, type, payload, key, aggregateType, aggregateId, headers, id, deliverAt } = message;
  const raw = payload instanceof Uint8Array || (typeof payload === "string" && headers?.contentType !== undefined);
  const payloadType = payload instanceof Uint8Array ? "bytea" : raw ? "text" : "json";
  const { rows } = await client.query<{ id: string | null }>(ENQUEUE.replace("$3::text", `$3::${payloadType}`), [
    stream,
    type,
    raw ? payload : JSON.stringify(payload),
    key,
    aggregateType,
    aggregateId,
    headers === undefined ? undefined : JSON.stringify(headers),
    id,
    deliverAt,
  ]);
  return rows[0]!.id;
}

const MESSAGE = { stream: "orders", type: "order_created", payload: { n: 1 } } as const;
const PATH = [["shop", "order_created"] as const];
/** Messages that both writers take, by what is special about them. */
const TAKEN: Readonly<Record<string, NewMessage>> = {
  "the least": MESSAGE,
  "every field": {
    ...MESSAGE,
    key: "k",
    aggregateType: "order",
    aggregateId: "o-1",
    headers: { correlationId: "c", schemaVersion: 2, traceparent: "00-x", note: "ü 👩‍👩‍👧", causationPath: PATH },
  },
  "an aggregate without a key": { ...MESSAGE, aggregateId: "Grüße 🎉" },
  "a correlation alone": { ...MESSAGE, headers: { correlationId: "c" } },
  "headers that are empty": { ...MESSAGE, headers: {} },
  "a path of no causes": { ...MESSAGE, headers: { causationPath: [] } },
  "a payload of null": { ...MESSAGE, payload: null },
  "a text in JSON": { ...MESSAGE, payload: "Grüße 'quoted' \"twice\" \\ \u0000 \ud800" },
  bytes: { ...MESSAGE, payload: new Uint8Array([0, 255, 92, 34]) },
  "bytes with a type": { ...MESSAGE, payload: new Uint8Array([1]), headers: { contentType: "application/json" } },
  "text of another type": { ...MESSAGE, payload: "ü", headers: { contentType: "text/plain", correlationId: "c" } },
  "names as long as they may be": {
    stream: "ü".repeat(100),
    type: "t".repeat(200),
    payload: 1,
    key: "世".repeat(341),
    aggregateType: "a".repeat(200),
    aggregateId: "i".repeat(1024),
  },
};

/** What both refuse, with the field that both name. */
const REFUSED: readonly [string, Record<string, unknown>][] = [
  ["stream", { stream: "" }],
  ["stream", { stream: undefined }],
  ["stream", { stream: "ü".repeat(101) }],
  ["stream", { stream: "inbox.mine" }],
  ["type", { type: "" }],
  ["type", { type: undefined }],
  ["type", { type: "t".repeat(201) }],
  ["key", { key: "" }],
  ["key", { key: "世".repeat(342) }],
  ["aggregateType", { aggregateType: "a".repeat(201) }],
  ["aggregateId", { aggregateId: "" }],
  ["id", { id: "" }],
  ["id", { id: "i".repeat(201) }],
  ["deliverAt", { deliverAt: new Date("9999-12-31T00:00:01Z") }],
  ["headers", { headers: [] }],
  ["headers", { headers: { correlationId: 5 } }],
  ["headers", { headers: { correlationId: "" } }],
  ["headers", { headers: { correlationId: "c".repeat(1025) } }],
  ["headers", { headers: { traceparent: null } }],
  ["headers", { headers: { contentType: "t".repeat(201) } }],
  ["headers", { headers: { causationPath: {} } }],
  ["headers", { headers: { causationPath: ["ab"] } }],
  ["headers", { headers: { causationPath: [["a"]] } }],
  ["headers", { headers: { causationPath: [["a", 1]] } }],
  ["headers", { headers: { causationPath: [["a", "b"], null] } }],
  ["headers", { headers: { large: "x".repeat(65_536) } }],
  ["payload", { payload: { n: 1 }, headers: { contentType: "text/plain" } }],
  ["payload", { payload: "x".repeat(1024 * 1024) }],
];

describe.skipIf(!hasPostgres())("enqueue from SQL", () => {
  let db: OutboxDatabase;

  beforeAll(async () => {
    db = await outboxDatabase();
  });
  afterAll(() => db[Symbol.asyncDispose]());

  const stored = (id: string) =>
    db.query(`select ${COLUMNS}, lane, size from txbox.message where id = $1`, [id]).then((rows) => rows[0]);

  it.each(Object.entries(TAKEN))("writes %s as the outbox does", async (_, message) => {
    const { id } = await inTransaction(db.pool, (tx) => db.outbox.enqueue(tx, message));
    const mine = await inTransaction(db.pool, (tx) => enqueueInSql(tx, message));
    const [byOutbox, bySql] = [await stored(id), await stored(mine!)];
    const [sizes] = await db.query(
      `select size, coalesce(octet_length(payload::text), octet_length(body)) + coalesce(octet_length(headers::text), 0) as expected
       from txbox.message where id = $1`,
      [mine],
    );
    expect({ ...bySql, lane: 0, size: 0 }).toEqual({ ...byOutbox, lane: 0, size: 0 });
    expect(sizes!["size"]).toBe(sizes!["expected"]);
    const lanes = bySql!["key"] === null ? Array.from({ length: 64 }, (_lane, n) => n) : [byOutbox!["lane"]];
    expect(lanes).toContain(bySql!["lane"]);
    const age = Date.now() - uuidv7Time(mine!)!;
    expect(age).toBeGreaterThan(-60_000);
    expect(age).toBeLessThan(60_000);
  });

  it.each(REFUSED.map(([field, change]) => ({ field, change, given: shown(change) })))(
    "refuses as the outbox does, and names $field: $given",
    async ({ field, change }) => {
      const message = { ...MESSAGE, ...change } as NewMessage;
      const before = await db.value("select count(*) from txbox.message");
      const byOutbox = await inTransaction(db.pool, (tx) => db.outbox.enqueue(tx, message)).catch((error) => error);
      expect(byOutbox).toBeInstanceOf(TxboxError);
      expect(byOutbox.field).toMatch(new RegExp(`^${field}`));
      const error: unknown = await enqueueInSql(db.pool, message).catch((refused: unknown) => refused);
      expect(error).toBeInstanceOf(pg.DatabaseError);
      const { code, column, hint, message: text } = error as pg.DatabaseError;
      expect(code).toBe(byOutbox.code === "payload_too_large" ? "54000" : "22023");
      expect(column).toBe(field.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
      expect(text.length).toBeLessThan(300);
      expect(hint).toMatch(/\w/);
      expect(await db.value("select count(*) from txbox.message")).toBe(before);
    },
  );

  it("refuses payloads that are none, and takes JSON of each type", async () => {
    const call = (payload: string, more = "") => db.query(`select txbox.enqueue_v1('s', 't', ${payload}${more}) as id`);
    await expect(call("null")).rejects.toMatchObject({ code: "22023", column: "payload" });
    await expect(call("5")).rejects.toMatchObject({ code: "22023", hint: expect.stringContaining("to_jsonb") });
    await expect(call("row(1, 2)")).rejects.toMatchObject({ code: "22023" });
    await expect(call("'{'")).rejects.toMatchObject({ code: "22P02" });
    await expect(call("'1'", ", deliver_at => '-infinity'")).rejects.toMatchObject({ column: "deliver_at" });
    await expect(call("'1'", ", headers => 'null'")).rejects.toMatchObject({ column: "headers" });
    for (const payload of [`'{"n" : 1}'`, `'{"n" : 1}'::json`, `'{"n" : 1}'::varchar`, `'{"n" : 1}'::jsonb`]) {
      const [row] = await call(payload);
      expect((await stored(String(row!["id"])))!["payload"]).toBe(payload.includes("jsonb") ? '{"n": 1}' : '{"n" : 1}');
    }
    const large = `to_json(repeat('x', 2000000))`;
    await expect(call(large)).rejects.toMatchObject({ code: "54000" });
    await call(large, ", max_payload_bytes => 3000000");
  });

  it("is undone with the transaction", async () => {
    await expect(
      inTransaction(db.pool, async (tx) => {
        await enqueueInSql(tx, { ...MESSAGE, id: "undone" });
        throw new Error("changed my mind");
      }),
    ).rejects.toThrow("changed my mind");
    expect(await stored("undone")).toBeUndefined();
    expect(await enqueueInSql(db.pool, { ...MESSAGE, id: "undone" })).toBe("undone");
  });

  it("enqueues a chosen id once, whichever writer comes first", async () => {
    expect(await enqueueInSql(db.pool, { ...MESSAGE, id: "sql-first" })).toBe("sql-first");
    expect(await enqueueInSql(db.pool, { ...MESSAGE, id: "sql-first" })).toBeNull();
    const again = (id: string) => inTransaction(db.pool, (tx) => db.outbox.enqueue(tx, { ...MESSAGE, id }));
    expect(await again("sql-first")).toEqual({ id: "sql-first", duplicate: true });
    expect(await again("outbox-first")).toEqual({ id: "outbox-first", duplicate: false });
    expect(await enqueueInSql(db.pool, { ...MESSAGE, id: "outbox-first" })).toBeNull();
    expect(await db.value("select count(*) from txbox.message where id like '%-first'")).toBe("2");
  });

  it.each([
    ["commits: nothing is written", "commit", null],
    ["rolls back: it is written", "rollback", "raced"],
  ])("waits for another transaction with the same id, which %s", async (_, end, expected) => {
    const id = `raced-${end}`;
    await using first = await db.connect();
    await using second = await db.connect();
    await first.query("begin");
    await enqueueInSql(first.client, { ...MESSAGE, id });
    const waiting = enqueueInSql(second.client, { ...MESSAGE, id });
    const waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%enqueue_v1%'";
    await until(async () => (await db.value(waits)) === "1", { what: "the wait of the second" });
    await first.query(end);
    expect(await waiting).toBe(expected === null ? null : id);
    expect(await db.value("select count(*) from txbox.message where id = $1", [id])).toBe("1");
  });

  it("schedules, and takes back what is not due", async () => {
    const deliverAt = new Date(Date.now() + 3_600_000);
    const id = (await enqueueInSql(db.pool, { ...MESSAGE, deliverAt }))!;
    expect(uuidv7Time(id)).toBe(deliverAt.getTime());
    const chosen = { ...MESSAGE, key: "k", id: "later", deliverAt, headers: { correlationId: "c", n: 1 } };
    expect(await enqueueInSql(db.pool, chosen)).toBe("later");
    expect(await enqueueInSql(db.pool, chosen)).toBeNull();
    const scheduled = () =>
      db.query(`select ${COLUMNS}, lane, size, deliver_at from txbox.scheduled where id = 'later'`);
    const bySql = await scheduled();
    const cancel = (of: string) => db.value("select txbox.cancel_v1($1)", [of]);
    expect(await cancel("later")).toBe(true);
    expect(await inTransaction(db.pool, (tx) => db.outbox.enqueue(tx, chosen))).toEqual({
      id: "later",
      duplicate: false,
    });
    expect(bySql).toEqual((await scheduled()).map((row) => ({ ...row, size: Number(row["size"]) + 1 })));
    expect(await inTransaction(db.pool, (tx) => db.outbox.cancel(tx, id))).toBe(true);
    expect([await cancel("later"), await cancel("later"), await cancel("unknown")]).toEqual([true, false, false]);
    expect(await db.value("select count(*) from txbox.scheduled")).toBe("0");
    const past = (await enqueueInSql(db.pool, { ...MESSAGE, deliverAt: new Date(0) }))!;
    expect(await stored(past)).toBeDefined();
  });

  it("keeps the order of a key with the outbox, and is delivered by a relay", { timeout: 60_000 }, async () => {
    await using own = await outboxDatabase();
    const publisher = new RecordingPublisher();
    const relay = createRelay({ store: own.store, name: "r", publisher });
    await relay.start();
    const keys = ["a", "ü", "世界", "😀"];
    const at = { stream: "orders", type: "changed" };
    for (let n = 1; n <= 20; n++) {
      for (const key of keys) {
        const message = { ...at, key, payload: { key, n } };
        await inTransaction<unknown>(own.pool, (tx) =>
          n % 2 === 0 ? enqueueInSql(tx, message) : own.outbox.enqueue(tx, message),
        );
      }
    }
    const soon = { ...at, key: "later", payload: { key: "later", n: 1 }, deliverAt: new Date(Date.now() + 500) };
    await enqueueInSql(own.pool, soon);
    await until(() => publisher.sent.length === 81, { what: "all messages", timeoutMs: 30_000 });
    for (const key of keys) expect(publisher.firsts(key)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    expect(publisher.firsts("later")).toEqual([1]);
    await relay.stop();
  });

  it("says which version of a contract it writes: without it, the payload is upcast from version 1", async () => {
    const events = defineEvents({
      priced: {
        stream: "contracts",
        version: 2,
        schema: z.object({ cents: z.number() }),
        upcast: { 1: (old: { euros: number }) => ({ cents: old.euros * 100 }) },
      },
    });
    const write = async (payload: object, headers?: object): Promise<void> => {
      const message = { stream: "contracts", type: "priced", payload, key: "priced" };
      await inTransaction(db.pool, (tx) =>
        enqueueInSql(tx, headers === undefined ? message : { ...message, headers: headers as never }),
      );
    };
    await write({ cents: 1 }, { schemaVersion: 2 });
    await write({ euros: 2 });
    await write({ euros: 3 }, { schemaVersion: 1 });
    await write({ cents: 4 });
    const seen: number[] = [];
    const inbox = createInbox({ store: db.store, consumer: "contracts", events });
    inbox.on("priced", async (_, { payload }) => void seen.push(payload.cents));
    const bus = createInProcessBus();
    await inbox.start(bus);
    const relay = createRelay({ store: db.store, name: "contracts", publisher: bus, streams: ["contracts"] });
    await relay.drainOnce();
    await inbox.stop();
    expect(seen).toEqual([1, 200, 300]);
    // As documented: nothing in SQL knows that this is no payload of version 1.
    expect((await db.store.admin.dead({ relay: "contracts" })).map(({ lastError }) => lastError)).toEqual([
      expect.stringContaining("(version 1, upcast to 2) does not fit: payload.cents"),
    ]);
  });

  it("may be called by a writer's role, and by no other", async () => {
    await using own = await outboxDatabase();
    await own.query(`create role ${RELAY}`);
    try {
      await own.query(own.store.grants({ relay: RELAY }));
      const asRole = (run: (tx: pg.PoolClient) => Promise<unknown>) =>
        inTransaction(own.pool, async (tx) => {
          await tx.query(`set local role ${RELAY}`);
          await run(tx);
        });
      await own.query("revoke execute on all functions in schema txbox from public");
      await expect(asRole((tx) => enqueueInSql(tx, MESSAGE))).rejects.toMatchObject({ code: "42501" });
      await own.query(own.store.grants({ writer: RELAY }));
      await asRole(async (tx) => {
        await enqueueInSql(tx, { ...MESSAGE, key: "k" });
        await enqueueInSql(tx, { ...MESSAGE, id: "chosen" });
        await enqueueInSql(tx, { ...MESSAGE, id: "later", deliverAt: new Date(Date.now() + 60_000) });
        expect((await tx.query("select txbox.cancel_v1('later') as gone")).rows).toEqual([{ gone: true }]);
      });
    } finally {
      await own.query(`drop owned by ${RELAY}; drop role ${RELAY}`);
    }
  });
});

function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}
