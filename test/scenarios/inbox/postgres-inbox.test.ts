import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { PermanentError, UnavailableError } from "../../../src/core/errors.ts";
import type { AnyEvents } from "../../../src/core/message.ts";
import { uuidv7At } from "../../../src/core/uuid.ts";
import { createInbox, type InboxOptions } from "../../../src/inbox/inbox.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import type { PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import { createReceiptDays, dropOldReceipts } from "../../../src/stores/postgres/receipt-days.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { incoming, run } from "../../support/inbox-delivery.ts";
import {
  openDriver,
  storeParts,
  type Driver,
  type DriverName,
  type StoreParts,
} from "../../support/postgres-drivers.ts";
import { createSubscription } from "../../support/subscription.ts";

const DAY_MS = 86_400_000;
const RETENTION_MS = 14 * DAY_MS;

describe.skipIf(!hasPostgres()).each<DriverName>(["node-postgres", "postgres.js", "PGlite"])("inbox on %s", (name) => {
  let base: TestDatabase;
  let driver: Driver;
  let store: StoreParts;

  beforeAll(async () => {
    base = await testDatabase();
    driver = openDriver(name, base.url, 20);
    store = storeParts(driver, { schema: 'In"box', tablePrefix: "p_" });
    await store.migrator.migrate();
    await store.database.exec("create table effect (n serial, what text)");
  });
  beforeEach(() => store.database.exec("truncate effect"));
  afterAll(async () => {
    await driver.close();
    await base.drop();
  });

  const open = (more: Partial<InboxOptions<AnyEvents, PostgresTx>> = {}) =>
    createInbox<AnyEvents, PostgresTx>({ store, consumer: "payments", ...more });
  const effect = (tx: PostgresTx, what: string) => run(tx, `insert into effect (what) values ('${what}')`);
  const effects = async () => (await store.database.query("select what from effect order by n")).map(([what]) => what);
  const receipts = (id: string) =>
    store.database.query(
      `select consumer, status, attempts, last_error, type, correlation_id, processed_at is not null
       from ${store.names.receipt} where message_id = $1::text order by consumer`,
      [id],
    );

  it("handles a message once for each consumer", async () => {
    const message = incoming({ headers: { correlationId: "c" } });
    const payments = open().on("t", (tx) => effect(tx, "payments"));
    const search = open({ consumer: "search" }).on("t", (tx) => effect(tx, "search"));
    expect(await payments.handle(message)).toBe("processed");
    expect(await payments.handle(message)).toBe("duplicate");
    expect(await search.handle(message)).toBe("processed");
    expect(await effects()).toEqual(["payments", "search"]);
    expect(await receipts(message.id)).toEqual([
      ["payments", "processed", "1", null, "t", "c", "t"],
      ["search", "processed", "1", null, "t", "c", "t"],
    ]);
  });

  it("gives the handler the decoded message", async () => {
    const seen: unknown[] = [];
    const message = incoming({ body: Buffer.from('{"ü":"🎉"}'), key: "k", position: 7n });
    await open().handle(message, async (_, handled, { signal }) => {
      seen.push(handled, signal.aborted);
    });
    expect(seen).toEqual([{ ...message, payload: { ü: "🎉" } }, false]);
  });

  it("skips types without a handler, leaving no receipt; rejects them when told to", async () => {
    const message = incoming({ type: "other" });
    const bus = createSubscription();
    await open()
      .on("t", async () => undefined)
      .start(bus);
    expect(await bus.deliver(message)).toMatchObject({ status: "done" });
    expect(await receipts(message.id)).toEqual([]);
    const strict = createSubscription();
    await open({ unknownTypes: "reject" })
      .on("t", async () => undefined)
      .start(strict);
    expect(await strict.deliver(message)).toMatchObject({ status: "rejected", error: { code: "permanent" } });
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["payments", "failed", "1"]);
  });

  it("rolls back a failed handler with its receipt, records the failure, and handles a later delivery", async () => {
    const message = incoming();
    const bus = createSubscription();
    let healthy = false;
    const outbox = createOutbox({ store });
    const inbox = open().on("t", async (tx) => {
      await effect(tx, "done");
      await outbox.enqueue(tx, { stream: "next", type: `after-${message.id}`, payload: 1 });
      if (!healthy) throw new Error(`boom ${"x".repeat(5000)} \0`);
    });
    await inbox.start(bus);
    expect(await bus.deliver(message)).toMatchObject({ status: "failed" });
    await expect(inbox.handle(message)).rejects.toThrow("boom");
    expect(await effects()).toEqual([]);
    const [row] = await receipts(message.id);
    expect(row?.slice(0, 3)).toEqual(["payments", "failed", "2"]);
    expect(row?.[3]?.length).toBeLessThanOrEqual(1000);
    expect(row?.[3]).toContain("boom");
    healthy = true;
    expect(await bus.deliver(message)).toMatchObject({ status: "done" });
    expect(await bus.deliver(message)).toMatchObject({ status: "done" });
    expect(await effects()).toEqual(["done"]);
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["payments", "processed", "3"]);
    expect(
      await store.database.query(`select count(*) from ${store.names.message} where type = 'after-${message.id}'`),
    ).toEqual([["1"]]);
  });

  it("rejects what can never work and, with maxAttempts, what failed too often", async () => {
    const bus = createSubscription();
    await open({ maxAttempts: 2 })
      .on("permanent", async () => Promise.reject(new PermanentError("never")))
      .on("failing", async () => Promise.reject(new Error("again")))
      .on("unavailable", async () => Promise.reject(new UnavailableError("out")))
      .on("t", async () => undefined)
      .start(bus);
    expect(await bus.deliver(incoming({ type: "permanent" }))).toMatchObject({
      status: "rejected",
      error: { code: "permanent" },
    });
    expect(await bus.deliver(incoming({ body: "{broken" }))).toMatchObject({
      status: "rejected",
      error: { code: "permanent" },
    });
    const failing = incoming({ type: "failing" });
    expect([(await bus.deliver(failing)).status, (await bus.deliver(failing)).status]).toEqual(["failed", "rejected"]);
    const unavailable = incoming({ type: "unavailable" });
    expect(await bus.deliver(unavailable)).toMatchObject({ status: "unavailable" });
    expect(await receipts(unavailable.id)).toEqual([]);
  });

  it("does not confuse a missing table of the handler with a missing schema", async () => {
    const bus = createSubscription();
    await open()
      .on("t", (tx) => run(tx, "select * from nowhere"))
      .start(bus);
    expect(await bus.deliver(incoming())).toMatchObject({ status: "failed", error: { code: "42P01" } });
  });

  it("fails when the handler swallowed an SQL error: nothing of its transaction can commit", async () => {
    const message = incoming();
    const bus = createSubscription();
    await open()
      .on("t", async (tx) => {
        await effect(tx, "lost");
        await run(tx, "select 1 / 0").catch(() => undefined);
      })
      .start(bus);
    expect(await bus.deliver(message)).toMatchObject({ status: "failed" });
    expect(await effects()).toEqual([]);
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["payments", "failed", "1"]);
  });

  it("does not let a handler end its transaction", async () => {
    for (const text of [
      "rollback",
      "Commit;",
      "END",
      "abort",
      "begin",
      "select 1; -- done\n commit",
      "/* x */ rollback",
    ]) {
      const message = incoming();
      const ending = open().handle(message, async (tx) => {
        await effect(tx, "half");
        await run(tx, text);
      });
      await expect(ending, text).rejects.toMatchObject({ code: "no_transaction" });
      expect((await receipts(message.id))[0]?.[1]).toBe("failed");
    }
    const method = { "node-postgres": "release", "postgres.js": "prepare", PGlite: "rollback" }[name];
    const ending = open().handle(incoming(), async (tx) => (tx as unknown as Record<string, () => void>)[method]?.());
    await expect(ending).rejects.toMatchObject({ code: "no_transaction" });
    expect(await effects()).toEqual([]);
    await open().handle(incoming(), async (tx) => {
      await run(tx, "savepoint a");
      await effect(tx, "undone");
      await run(tx, "rollback to savepoint a");
      await run(tx, "release a");
      await effect(tx, "it''s the end; commit");
    });
    expect(await effects()).toEqual(["it's the end; commit"]);
  });

  it("leaves nothing behind on the connection of a handler", async () => {
    for (const text of ["set application_name = 'left'", "listen left", "select pg_advisory_lock(1)"]) {
      const leaving = open().handle(incoming(), (tx) => run(tx, text));
      await expect(leaving, text).rejects.toMatchObject({ code: "no_transaction", field: "tx" });
    }
    await open().handle(incoming(), (tx) => run(tx, "set local application_name = 'gone'"));
    const [row] = await store.database.query("select current_setting('application_name')");
    expect(row?.[0]).not.toMatch(/left|gone/);
  });

  it.each<[what: string, headers: object]>([
    ["an object as content type", { contentType: { toString: 1, valueOf: 1 } }],
    ["null as content type", { contentType: null }],
    ["a list as content type", { contentType: [] }],
  ])("rejects a message with %s, and does not take it for an outage", async (_, headers) => {
    for (const mode of ["inline", "stored"] as const) {
      const bus = createSubscription();
      let runs = 0;
      await open({ mode, consumer: `hostile-${mode}` })
        .on("t", async () => void runs++)
        .start(bus);
      expect(await bus.deliver(incoming({ headers: { ...headers } }))).toMatchObject({
        status: "rejected",
        error: { code: "permanent", field: "headers.contentType" },
      });
      expect(runs).toBe(0);
    }
  });

  it("counts everything that a handler throws as a failure", async () => {
    const thrown = [
      Object.create(null),
      { toString: 1 },
      Symbol("s"),
      Object.defineProperty(new Error("x"), "message", { get: () => JSON.parse("{") as string }),
      new Proxy({}, { has: () => JSON.parse("{") as boolean }),
    ];
    const bus = createSubscription();
    await open()
      .on("t", (_, { payload }) => Promise.reject(thrown[(payload as { n: number }).n]))
      .start(bus);
    for (const n of thrown.keys()) {
      expect(await bus.deliver(incoming({ body: `{"n":${n}}` })), String(n)).toMatchObject({ status: "failed" });
    }
  });

  it("hands down only what can be: what other producers mean by the same names stays behind", async () => {
    const outbox = createOutbox({ store });
    const headers = { correlationId: 5, causationPath: "x", traceparent: { a: 1 } } as object;
    const message = incoming({ headers: { ...headers } });
    await open().handle(message, (tx) => outbox.enqueue(tx, { stream: "s", type: "down", payload: 1 }));
    const rows = await store.database.query(
      `select correlation_id, headers->>'causationPath', headers->>'traceparent' from ${store.names.message} where type = 'down'`,
    );
    expect(rows).toEqual([[message.id, '[["payments","t"]]', null]]);
  });

  it("hands correlation and causes down to what a handler enqueues", async () => {
    const outbox = createOutbox({ store });
    const message = incoming({ headers: { causationPath: [["orders", "order_placed"]], traceparent: "00-a-b-01" } });
    await open()
      .on("t", async (tx) => {
        await outbox.enqueue(tx, [
          { stream: "s", type: `child-${message.id}`, payload: 1 },
          { stream: "s", type: `child-${message.id}`, payload: 2, headers: { correlationId: "own", x: 1 } },
        ]);
      })
      .handle(message);
    const rows = await store.database.query(
      `select correlation_id, headers from ${store.names.message} where type = 'child-${message.id}' order by position`,
    );
    expect(rows.map(([correlationId, headers]) => [correlationId, JSON.parse(String(headers))])).toEqual([
      [
        message.id,
        {
          causationId: message.id,
          causationPath: [
            ["orders", "order_placed"],
            ["payments", "t"],
          ],
          traceparent: "00-a-b-01",
        },
      ],
      [
        "own",
        {
          causationId: message.id,
          causationPath: [
            ["orders", "order_placed"],
            ["payments", "t"],
          ],
          traceparent: "00-a-b-01",
          x: 1,
        },
      ],
    ]);
  });

  it("makes days as they come, drops old ones, and refuses ids beyond them", async () => {
    const inbox = open().on("t", (tx) => effect(tx, "x"));
    const days = { database: store.database, names: store.names, retentionMs: RETENTION_MS };
    await createReceiptDays(days);
    expect(await createReceiptDays(days)).toEqual([]);
    const old = incoming({ id: uuidv7At(Date.now() - 10 * DAY_MS) });
    const ahead = incoming({ id: uuidv7At(Date.now() + 5 * DAY_MS) });
    const foreign = incoming({ id: "foreign-1" });
    for (const message of [old, ahead, foreign]) expect(await inbox.handle(message)).toBe("processed");
    for (const message of [old, ahead, foreign]) expect(await inbox.handle(message)).toBe("duplicate");
    const bus = createSubscription();
    await inbox.start(bus);
    for (const age of [20, 5000, -9, -20_000, -3_000_000]) {
      const expired = incoming({ id: uuidv7At(Date.now() - age * DAY_MS) });
      expect(await bus.deliver(expired)).toMatchObject({ status: "rejected", error: { code: "receipt_expired" } });
    }
    expect(await dropOldReceipts(days)).toEqual([]);
    expect(await dropOldReceipts({ ...days, retentionMs: 5 * DAY_MS })).toEqual([
      new Date(Date.now() - 10 * DAY_MS).toISOString().slice(0, 10),
    ]);
    expect(await receipts(old.id)).toEqual([]);
    // A process that keeps receipts for longer must not begin the day anew.
    const before = await effects();
    expect(await bus.deliver(old)).toMatchObject({ status: "rejected", error: { code: "receipt_expired" } });
    expect(await effects()).toEqual(before);
    // As left behind by a process that was killed in between.
    const young = incoming({ id: uuidv7At(Date.now() - 4 * DAY_MS) });
    await inbox.handle(young);
    const table = store.names.of(
      `receipt_${new Date(Date.now() - 4 * DAY_MS).toISOString().slice(0, 10).replaceAll("-", "")}`,
    );
    await store.database.query(`alter table ${store.names.receipt} detach partition ${table}`);
    expect(await dropOldReceipts({ ...days, retentionMs: 2 * DAY_MS })).toHaveLength(1);
    expect(await bus.deliver(young)).toMatchObject({ status: "rejected", error: { code: "receipt_expired" } });
    await store.database.query(
      `update ${store.names.receipt} set received_at = now() - interval '30 days' where message_id = 'foreign-1'`,
    );
    await dropOldReceipts(days);
    expect(await receipts("foreign-1")).toEqual([]);
    expect(await receipts(ahead.id)).toHaveLength(1);
  });

  it("records failures of days that have no partition yet", async () => {
    const message = incoming({ id: uuidv7At(Date.now() - 3 * DAY_MS), body: "{broken" });
    await expect(
      open()
        .on("t", async () => undefined)
        .handle(message),
    ).rejects.toMatchObject({ code: "permanent" });
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["payments", "failed", "1"]);
  });

  it("ends a handler that takes too long, and lands nothing of what it does later", async () => {
    const bus = createSubscription();
    const message = incoming();
    const late = Promise.withResolvers<unknown>();
    let aborted = false;
    const inbox = open({ handlerTimeoutMs: 50 }).on("t", async (tx, _, { signal }) => {
      if (name !== "PGlite") await run(tx, "savepoint here");
      await effect(tx, "in time");
      await sleep(150);
      aborted = signal.aborted;
      await effect(tx, "late").then(late.reject, late.resolve);
    });
    await inbox.start(bus);
    expect(await bus.deliver(message)).toMatchObject({ status: "failed", error: { code: "handler_timeout" } });
    // The next user of the connection is not disturbed.
    await Promise.all(
      Array.from({ length: 5 }, () =>
        store.inTransaction(async (_, query) => [await query("select 1"), await sleep(name === "PGlite" ? 0 : 150)]),
      ),
    );
    expect(await late.promise).toBeInstanceOf(Error);
    expect(aborted).toBe(true);
    expect(await effects()).toEqual([]);
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["payments", "failed", "1"]);
  });

  it("refuses what a handler left running after it ended", async () => {
    const refusals: Promise<unknown>[] = [];
    await open().handle(incoming(), async (tx) => {
      await effect(tx, "in time");
      // It may be refused while the commit is still under way.
      const left = sleep(20).then(() => effect(tx, "left behind"));
      refusals.push(left.catch((error: unknown) => error));
    });
    expect(String(await refusals[0])).toMatch(/^\w*Error: .*(?:over|closed|transaction is needed)/);
    expect(await effects()).toEqual(["in time"]);
  });

  it("stores first, handles by a local relay", async () => {
    const inbox = open({ mode: "stored", consumer: "stored" });
    const seen: unknown[] = [];
    let healthy = false;
    inbox.on("t", async (tx, handled) => {
      await effect(tx, "stored");
      if (!healthy) throw new Error("not yet");
      seen.push(handled);
    });
    const bus = createSubscription();
    await inbox.start(bus);
    const createdAt = new Date("2026-01-02T03:04:05.678Z");
    const message = incoming({
      body: Buffer.from('{"n": 1}'),
      key: "k",
      aggregateType: "order",
      aggregateId: "o",
      position: 2n ** 40n,
      createdAt,
      headers: { correlationId: "c", x: 1 },
    });
    expect(await bus.deliver(message)).toMatchObject({ status: "done", handled: "stored" });
    expect(await bus.deliver(message)).toMatchObject({ status: "done", handled: "duplicate" });
    expect(await effects()).toEqual([]);
    expect(await receipts(message.id)).toEqual([["stored", "received", "0", null, "t", "c", "f"]]);
    const rows = await store.database.query(
      `select id, stream, type, key, aggregate_type, aggregate_id, correlation_id, payload, headers from ${store.names.message} where stream = 'inbox.stored'`,
    );
    expect(rows[0]?.slice(0, 8)).toEqual([message.id, "inbox.stored", "t", "k", "order", "o", "c", '{"n": 1}']);
    const headers = { ...JSON.parse(String(rows[0]?.[8])), correlationId: "c" };
    const logged = {
      ...message,
      stream: "inbox.stored",
      position: 1n,
      key: "k",
      aggregateType: "order",
      aggregateId: "o",
      body: '{"n": 1}',
      headers,
      createdAt: new Date(),
    };
    const { signal } = new AbortController();
    const publisher = inbox.storedPublisher();
    expect(await publisher.publish([logged], signal)).toMatchObject([{ status: "failed" }]);
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["stored", "received", "1"]);
    // The failed one is still in the log: a repeat from the broker must not add another.
    expect(await bus.deliver(message)).toMatchObject({ handled: "duplicate" });
    healthy = true;
    expect(await publisher.publish([logged], signal)).toEqual([{ status: "published" }]);
    expect(await publisher.publish([logged], signal)).toEqual([{ status: "published" }]);
    expect(await effects()).toEqual(["stored"]);
    expect(seen).toEqual([{ ...message, body: '{"n": 1}', payload: { n: 1 } }]);
    expect((await receipts(message.id))[0]?.slice(0, 3)).toEqual(["stored", "processed", "2"]);
    expect(await bus.deliver(message)).toMatchObject({ handled: "duplicate" });
  });

  it("rejects at once what it could not store", async () => {
    const inbox = open({ mode: "stored", consumer: "stored" }).on("t", async () => undefined);
    await expect(inbox.handle(incoming({ body: "{broken" }))).rejects.toMatchObject({ code: "permanent" });
  });
});
