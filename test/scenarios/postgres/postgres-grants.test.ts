import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createInbox, createOutbox, PermanentError, publishEach } from "../../../src/index.ts";
import { uuidv7At } from "../../../src/core/uuid.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { createSubscription } from "../../support/subscription.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";

const NAMES = { schema: 'Gr"ants', tablePrefix: "o'dd_" };
const ROLES = { writer: 'app "writer"', consumer: "app'consumer", relay: "app\\relay", maintainer: "App Maintainer" };
const DAY_MS = 86_400_000;
const INSUFFICIENT_PRIVILEGE = "42501";

const quote = (name: string) => `"${name.replaceAll('"', '""')}"`;

describe.skipIf(!hasPostgres())("grants", () => {
  let base: TestDatabase;
  let admin: pg.Pool;
  const pools: pg.Pool[] = [];

  beforeAll(async () => {
    base = await testDatabase();
    admin = new pg.Pool({ connectionString: base.url });
    const store = createPostgresStore({ client: admin, ...NAMES });
    await store.migrator.migrate();
    for (const role of Object.values(ROLES)) await admin.query(`create role ${quote(role)} login`);
    await admin.query(store.grants(ROLES));
    // Granting again changes nothing.
    await admin.query(store.grants(ROLES));
  });
  afterAll(async () => {
    for (const pool of pools) await pool.end();
    for (const role of Object.values(ROLES))
      await admin.query(`drop owned by ${quote(role)}; drop role ${quote(role)}`);
    await admin.end();
    await base.drop();
  });

  function as(role: string) {
    const url = new URL(base.url);
    const pool = new pg.Pool({ host: url.hostname, port: Number(url.port), user: role, database: base.name });
    pools.push(pool);
    return { pool, store: createPostgresStore({ client: pool, ...NAMES }) };
  }

  it("let a writer enqueue in every way", async () => {
    const { pool, store } = as(ROLES.writer);
    await store.migrator.check();
    const outbox = createOutbox({ store });
    const message = { stream: "s", type: "t", payload: 1 };
    const later = new Date(Date.now() + 60_000);
    await inTransaction(pool, async (tx) => {
      await outbox.enqueue(tx, message);
      await outbox.enqueue(tx, [message, { ...message, payload: new Uint8Array([1]) }]);
      await outbox.enqueue(tx, { ...message, id: "chosen" });
      expect(await outbox.enqueue(tx, { ...message, id: "chosen" })).toEqual({ id: "chosen", duplicate: true });
      await outbox.enqueue(tx, [
        message,
        { ...message, id: "later", deliverAt: later },
        { ...message, deliverAt: later },
      ]);
      await outbox.lockKey(tx, { stream: "s", key: "k" });
      expect(await outbox.cancel(tx, "later")).toBe(true);
    });
  });

  it("let a writer do nothing else", async () => {
    const { pool } = as(ROLES.writer);
    const table = (name: string) => `${quote(NAMES.schema)}.${quote(NAMES.tablePrefix + name)}`;
    const refused = [
      `insert into ${table("message")} (position, size, lane, id, stream, type) overriding system value values (1, 1, 1, 'x', 's', 't')`,
      `insert into ${table("message")} (xid, size, lane, id, stream, type) values ('1', 1, 1, 'x', 's', 't')`,
      `insert into ${table("message")} (created_at, size, lane, id, stream, type) values (now(), 1, 1, 'x', 's', 't')`,
      `update ${table("message")} set type = 'x'`,
      `delete from ${table("message")}`,
      `truncate ${table("message")}`,
      `select payload from ${table("message")}`,
      `select payload from ${table("message_0")}`,
      `insert into ${table("message_0")} (size, lane, id, stream, type) values (1, 1, 'x', 's', 't')`,
      `update ${table("scheduled")} set deliver_at = now()`,
      `select * from ${table("cursor")}`,
      `insert into ${table("receipt")} values ('0001-01-01', 'c', 'm', 't', null, 'processed')`,
      `insert into ${table("migration")} values (9, 'x')`,
      `create table ${table("mine")} ()`,
    ];
    for (const sql of refused)
      await expect(pool.query(sql), sql).rejects.toMatchObject({ code: INSUFFICIENT_PRIVILEGE });
  });

  it("tell a relay without the rights to maintain what to do", async () => {
    const { store } = as(ROLES.relay);
    await expect(store.maintenance.run()).rejects.toThrow(/permission denied.*maintenance: false/);
  });

  it("let a consumer keep receipts", async () => {
    const { store } = as(ROLES.consumer);
    const inbox = createInbox({ store, consumer: "c" }).on("t", async () => undefined);
    const message = { id: "foreign", type: "t", body: "1", headers: {} };
    expect([await inbox.handle(message), await inbox.handle(message)]).toEqual(["processed", "duplicate"]);
  });

  it("make a consumer wait for a day without a partition, which only maintenance can make; no attempt is counted", async () => {
    const { store } = as(ROLES.consumer);
    const bus = createSubscription();
    const message = { id: uuidv7At(Date.now() - 3 * DAY_MS), type: "t", body: "1", headers: {} };
    await createInbox({ store, consumer: "c", maxAttempts: 1 })
      .on("t", async () => undefined)
      .start(bus);
    for (let delivery = 1; delivery <= 2; delivery++) {
      const result = await bus.deliver(message);
      expect(result).toMatchObject({ status: "unavailable", error: { code: "unavailable" } });
      expect(String((result as { error: unknown }).error)).toMatch(/no partition for receipts of .*txbox maintain/);
    }
    const ancient = { ...message, id: uuidv7At(Date.now() - 300 * DAY_MS) };
    expect(await bus.deliver(ancient)).toMatchObject({ status: "rejected", error: { code: "receipt_expired" } });
    const owner = createPostgresStore({ client: admin, ...NAMES });
    // As a maintainer that was late would.
    await expect(
      owner.ledger.fail({ consumer: "other", messageId: message.id, type: "t", correlationId: null }, "x"),
    ).resolves.toBe(1);
    expect(await bus.deliver(message)).toMatchObject({ status: "done", handled: "processed" });
  });

  it("let a relay deliver, park and give up, and its admin look and requeue", async () => {
    const { store } = as(ROLES.relay);
    const writer = as(ROLES.writer);
    const outbox = createOutbox({ store: writer.store });
    await inTransaction(writer.pool, (tx) =>
      outbox.enqueue(
        tx,
        ["good", "bad", "worse"].map((type) => ({ stream: "relayed", type, key: type, payload: 1 })),
      ),
    );
    const publisher = publishEach(async ({ type }) => {
      if (type === "bad") throw new Error("later");
      if (type === "worse") throw new PermanentError("never");
    });
    const options = { store, name: "r", streams: ["relayed"], publisher, maintenance: false };
    await createRelay(options).drainOnce();
    const [letter] = await store.admin.dead({});
    const anna = store.admin.by({ actor: "anna", reason: "mended" });
    await anna.edit({ relay: "r", id: letter!.id }, { payload: 2 });
    await anna.edit({ relay: "r", id: letter!.id }, { payload: 3 });
    expect(await store.admin.deadGroups({})).toMatchObject([{ relay: "r", group: letter!.group, count: 1 }]);
    expect(await anna.requeue({ relay: "r", group: letter!.group })).toBe(1);
    await anna.by({ redrive: "run" }).requeue({ relay: "r" });
    await anna.by({ redrive: "run" }).requeue({ relay: "r" });
    expect((await store.admin.changes({})).changes.map(({ action, actor }) => [action, actor])).toEqual([
      ["redrive", ROLES.relay],
      ["requeue", "anna"],
      ["edit", "anna"],
      ["edit", "anna"],
    ]);
    expect((await store.admin.find({ stream: "relayed" })).length).toBeGreaterThan(0);
    expect(await store.admin.relays()).toMatchObject([{ name: "r" }]);
    // Receipts are not its business: it says so.
    expect(await store.admin.figures()).toMatchObject({ relays: [{ name: "r" }], failedReceipts: null });
    await createRelay(options).drainOnce();
    await store.admin.rewind("r", "earliest");
    await store.admin.pause("r");
    await store.admin.drop("r");
  });

  it("let relays, and roles that may read all tables, see the figures of the store, old segments included", async () => {
    const fast = { segmentMs: 1, retentionMs: 0 };
    const owner = createPostgresStore({ client: admin, ...NAMES, ...fast });
    await owner.queue.join({
      relay: "behind",
      owner: "unknown",
      leaseMs: 1000,
      start: "earliest",
      streams: undefined,
      unordered: [],
      batch: { messages: 1, bytes: 1 },
      maxParked: 1,
    });
    await inTransaction(admin, (tx) =>
      createOutbox({ store: owner }).enqueue(tx, { stream: "s", type: "t", payload: 1 }),
    );
    await expect.poll(async () => (await owner.maintenance.run()).heldBackBy, { timeout: 10_000 }).toEqual(["behind"]);
    const reader = "app reader";
    const schema = quote(NAMES.schema);
    await admin.query(`create role ${quote(reader)} login; grant usage on schema ${schema} to ${quote(reader)};
      grant select on all tables in schema ${schema} to ${quote(reader)}`);
    try {
      for (const [role, failedReceipts] of [
        [ROLES.relay, null],
        [reader, expect.any(Array) as unknown],
      ] as const) {
        const store = createPostgresStore({ client: as(role).pool, ...NAMES, ...fast });
        await store.migrator.check();
        const figures = await store.admin.figures();
        expect(figures, role).toMatchObject({ relays: [{ name: "behind", holdsBackRetention: true }], failedReceipts });
      }
    } finally {
      await admin.query(`drop owned by ${quote(reader)}; drop role ${quote(reader)}`);
    }
  });

  it("make a maintainer a member of the owner", async () => {
    const { pool } = as(ROLES.maintainer);
    await pool.query(`create table ${quote(NAMES.schema)}.made ()`);
    await pool.query(`drop table ${quote(NAMES.schema)}.made`);
  });
});
