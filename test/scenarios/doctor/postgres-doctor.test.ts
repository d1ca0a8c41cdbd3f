import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Diagnosis } from "../../../src/index.ts";
import { createInbox, createRelay, diagnose, type Store } from "../../../src/index.ts";
import { checkList } from "../../../src/doctor/diagnose.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { dead, joined, PUBLISHED, retry } from "../../../src/testing/store/consumer.ts";
import {
  type PostgresServer,
  serverOrSkip,
  type ServerSlot,
  startPgBouncer,
  startPostgres,
  until,
  withDeadline,
} from "../../harness/index.ts";
import { incoming } from "../../support/inbox-delivery.ts";
import { runCli } from "../../support/run-cli.ts";
import { openPool, outboxDatabase, series, type OutboxDatabase } from "../support/outbox-database.ts";
import { copyRows } from "../support/restored-copy.ts";
import { startStandby } from "../support/standby-server.ts";
import { fakedTime } from "./faked-time.ts";

const DAY_MS = 86_400_000;
const role = `doctor_${process.pid}`;

let slot: ServerSlot<PostgresServer>;
let database: OutboxDatabase;
let begunAt: number;
let left: PostgresServer;
let forgotten: pg.Client;
const provoked = new Set<string>();

beforeAll(async () => {
  slot = await serverOrSkip("PostgreSQL", () => startPostgres({ owned: true }));
  if (slot.skipped) return;
  database = await outboxDatabase({ serverUrl: slot.server.url });
  await database.query(`create role ${role} login`);
  // Left open from here on, as by a person who forgot it; on another server, since it would hold up what others look
  // at.
  left = await startPostgres({ owned: true });
  forgotten = new pg.Client({ connectionString: left.url, application_name: "forgetful" });
  await forgotten.connect();
  await forgotten.query("begin; create table forgotten (n int); prepare transaction 'left ''behind'''");
  await forgotten.query("begin; select txid_current()");
  begunAt = performance.now();
});
beforeEach(({ skip }) => skip(slot.skipped, slot.reason));
afterAll(async () => {
  await forgotten?.end();
  await left?.stop();
  await database?.[Symbol.asyncDispose]();
  await slot.stop();
});

/** What the doctor says under this name, which is what the test is about. */
async function findings(check: string, store: Store = database.store): Promise<Diagnosis[]> {
  provoked.add(check);
  const found = await diagnose(store, { only: [check] });
  for (const { finding, consequence, fix } of found) {
    expect(consequence).toMatch(/\w{3}/);
    expect(fix).toMatch(/\w{3}/);
    expect(finding).not.toMatch(/could not be looked at|undefined|null|NaN/);
  }
  return found;
}

/** A database of its own, so that nothing else is wrong with it. */
function fresh(): Promise<OutboxDatabase> {
  return outboxDatabase({ serverUrl: slot.server.url });
}

/** All tables and what is in them, with the transactions that wrote or locked it: one that was written again differs. */
async function everyRowOf(of: OutboxDatabase): Promise<string> {
  const tables = await of.query<{ name: string }>(
    `select c.oid::regclass::text as name, c.xmin::text from pg_class c
     where c.relkind in ('r', 'S') and c.relnamespace = 'txbox'::regnamespace order by c.oid`,
  );
  const rows = tables.map(({ name }) => of.query(`select ctid, xmin, xmax, t.* from ${name} t order by ctid`));
  return JSON.stringify([tables, await Promise.all(rows)]);
}

const as = (url: string, user: string): string => Object.assign(new URL(url), { username: user }).href;

describe("the doctor on PostgreSQL", () => {
  it("finds nothing where nothing is wrong", async () => {
    await using clean = await fresh();
    await clean.enqueue(series("a", 5));
    await createRelay({ store: clean.store, name: "r", publisher: createMemoryPublisher() }).drainOnce();
    // The server of the tests does not sync.
    expect((await diagnose(clean.store)).filter(({ check }) => check !== "durability")).toEqual([]);
    const { code, stdout } = await runCli(["doctor", "--database-url", clean.url]);
    expect(code).toBe(6);
    expect(stdout).toMatch(/^ERROR durability: fsync is off$/m);
    expect((await runCli(["doctor", "--database-url", clean.url, "--only", "rights,jit"])).code).toBe(0);
  });

  it("connection, schema and search_path", async () => {
    for (const name of ["connection", "schema", "search_path"]) provoked.add(name);
    const away = await runCli(["doctor", "--database-url", "postgres://postgres@127.0.0.1:1/nowhere", "--json"]);
    expect(away.code).toBe(4);
    expect(away.json).toMatchObject({ findings: [{ check: "connection", severity: "error" }] });

    const missing = await runCli(["doctor", "--database-url", slot.server.url, "--json"]);
    expect(missing.code).toBe(6);
    const { findings: found } = missing.json as { findings: Diagnosis[] };
    expect(found[0]).toMatchObject({ check: "schema", fix: "Run `txbox migrate`" });
    // Of the tables nothing is said, of the server all.
    expect(found.map(({ check }) => check).sort()).toEqual(["durability", "schema"]);
    await using newer = await fresh();
    await newer.query("insert into txbox.migration (version, name) values (9999, 'future')");
    expect((await diagnose(newer.store))[0]).toMatchObject({ check: "schema", finding: expect.stringMatching(/9999/) });

    await using path = await fresh();
    const pool = openPool(`${path.url}?options=${encodeURIComponent("-c search_path=public,pg_catalog")}`);
    expect(await diagnose(createPostgresStore({ client: pool }))).toMatchObject([
      { check: "search_path", severity: "error" },
    ]);
    await pool.end();
  });

  it("durability: settings that lose commits", async () => {
    const pool = openPool(`${database.url}?options=${encodeURIComponent("-c synchronous_commit=off")}`);
    const found = await findings("durability", createPostgresStore({ client: pool }));
    expect(found.map(({ finding }) => finding)).toEqual(["fsync is off", "synchronous_commit is off for this role"]);
    await pool.end();
    const torn = async (value: "on" | "off"): Promise<void> => {
      await database.query(`alter system set full_page_writes = ${value}`);
      await database.query("select pg_reload_conf()");
      await until(async () => (await database.value("show full_page_writes")) === value, { what: `pages ${value}` });
    };
    await torn("off");
    expect((await findings("durability")).map(({ finding }) => finding)).toContain("full_page_writes is off");
    await torn("on");
  });

  it("standby", async () => {
    await using standby = await startStandby(slot.server);
    await standby.caughtUp();
    const url = Object.assign(new URL(standby.url), { pathname: new URL(database.url).pathname }).href;
    const pool = openPool(url);
    expect(await findings("standby", createPostgresStore({ client: pool }))).toMatchObject([
      { severity: "error", fix: expect.stringMatching(/primary/) },
    ]);
    await pool.end();
    expect(await findings("standby")).toEqual([]);
  });

  it("replication_slots: one without a reader, and one that holds too much", async () => {
    expect(await findings("replication_slots")).toEqual([]);
    await database.query("select pg_create_physical_replication_slot('old_reader', true)");
    expect(await findings("replication_slots")).toMatchObject([
      { severity: "warning", finding: expect.stringMatching(/old_reader has no reader/) },
    ]);
    // A limit, and more than it holds.
    await database.query("alter system set max_slot_wal_keep_size = '1MB'");
    await database.query("select pg_reload_conf()");
    for (let i = 0; i < 3; i++) {
      await database.query(
        "select pg_logical_emit_message(false, 'filler', repeat('x', 1000000)) from generate_series(1, 8)",
      );
      await database.query("select pg_switch_wal()");
    }
    await database.query("checkpoint");
    expect(await findings("replication_slots")).toMatchObject([
      { severity: "error", finding: expect.stringMatching(/\((?:lost|unreserved)\)/) },
    ]);
    await database.query("select pg_drop_replication_slot('old_reader')");
    expect(await findings("replication_slots")).toEqual([]);
  });

  it("vacuum: autovacuum that is off, and dead rows that stay", async () => {
    await using starved = await fresh();
    await createRelay({ store: starved.store, name: "r", publisher: createMemoryPublisher() }).drainOnce();
    expect(await findings("vacuum", starved.store)).toEqual([]);
    await starved.query("alter system set autovacuum = off");
    await starved.query("select pg_reload_conf()");
    await until(async () => (await starved.value("show autovacuum")) === "off", { what: "autovacuum off" });
    await starved.query(
      "do $$ begin for i in 1..12000 loop update txbox.cursor set settled = settled + 1, stamp = pg_current_xact_id(); end loop; end $$",
    );
    await until(async () => (await diagnose(starved.store, { only: ["vacuum"] })).length === 2, {
      what: "statistics",
      timeoutMs: 60_000,
    });
    expect((await findings("vacuum", starved.store)).map(({ finding }) => finding)).toEqual([
      "autovacuum is off",
      expect.stringMatching(/txbox\.cursor has 1\d{4} dead rows beside \d+/),
    ]);
    const uncounted = openPool(`${starved.url}?options=${encodeURIComponent("-c track_counts=off")}`);
    expect(
      (await findings("vacuum", createPostgresStore({ client: uncounted }))).map(({ finding }) => finding),
    ).toContain("track_counts is off");
    await uncounted.end();
    await starved.query("alter system reset autovacuum");
    await starved.query("select pg_reload_conf()");
    await starved.query("vacuum txbox.cursor");
  });

  it("connections that run out", async () => {
    const settings = { max_connections: "12", superuser_reserved_connections: "3", max_wal_senders: "2" };
    await using small = await startPostgres({ owned: true, settings });
    const pool = openPool(small.url, 9);
    const store = createPostgresStore({ client: pool });
    await store.migrator.migrate();
    const few = openPool(small.url, 1);
    expect(await findings("connections", createPostgresStore({ client: few }))).toEqual([]);
    // A role that may not look into the sessions of others sees how many there are.
    const client = await pool.connect();
    await client.query("create role plain login");
    await client.query("grant usage on schema txbox to plain; grant select on txbox.migration to plain");
    client.release();
    const plain = new pg.Pool({ connectionString: as(small.url, "plain"), max: 1, idleTimeoutMillis: 0 });
    expect(await findings("connections", createPostgresStore({ client: plain }))).toEqual([]);
    const held = await Promise.all(Array.from({ length: 7 }, () => pool.connect()));
    expect(await findings("connections", createPostgresStore({ client: few }))).toMatchObject([
      { severity: "warning", finding: expect.stringMatching(/of 9 connections are in use/) },
    ]);
    expect(await findings("connections", createPostgresStore({ client: plain }))).toHaveLength(1);
    for (const one of held) one.release();
    await Promise.all([pool.end(), few.end(), plain.end()]);
  });

  it.for(["+2h", "-10s"])("clock_skew: a process whose clock is wrong by %s", async (offset) => {
    provoked.add("clock_skew");
    const args = ["doctor", "--database-url", database.url, "--only", "clock_skew", "--json"];
    const wrong = await runCli(args, { env: await fakedTime(offset) });
    expect(wrong.code, wrong.stderr).toBe(6);
    expect(wrong.json).toMatchObject({
      findings: [
        {
          check: "clock_skew",
          severity: offset === "+2h" ? "error" : "warning",
          finding: expect.stringMatching(
            offset === "+2h" ? /7[12]\d\d(?:\.\d)? s ahead of/ : /(?:9|1\d)(?:\.\d)? s behind/,
          ),
        },
      ],
    });
    expect((await runCli(args)).code).toBe(0);
  });

  async function behind(
    poolMode: "session" | "transaction" | "statement",
  ): Promise<AsyncDisposable & { store: Store }> {
    const bouncer = await startPgBouncer({ postgresUrl: slot.server.url, poolMode });
    const pool = openPool(Object.assign(new URL(bouncer.url), { pathname: new URL(database.url).pathname }).href);
    const close = async (): Promise<void> => {
      await pool.end();
      await bouncer.stop();
    };
    return { store: createPostgresStore({ client: pool }), [Symbol.asyncDispose]: close };
  }

  it.for(["session", "transaction"] as const)("pooler: PgBouncer in %s mode", async (poolMode) => {
    expect(await findings("pooler")).toEqual([]);
    await using bouncer = await behind(poolMode);
    expect(await findings("pooler", bouncer.store)).toMatchObject([
      { severity: "info", finding: expect.stringMatching(/pooler is between/) },
    ]);
  });

  it("pooler: PgBouncer in statement mode, where nothing else can be looked at, which is said", async () => {
    await using bouncer = await behind("statement");
    expect(await findings("pooler", bouncer.store)).toMatchObject([
      { severity: "error", fix: expect.stringMatching(/pool_mode = transaction/) },
    ]);
    const all = await diagnose(bouncer.store);
    expect(all.filter(({ check }) => check === "pooler")).toHaveLength(1);
    expect(all.filter(({ finding }) => finding.includes("could not be looked at")).length).toBeGreaterThan(5);
  });

  it("timeouts that cut off what has to end", async () => {
    expect(await findings("timeouts")).toEqual([]);
    const options = "-c statement_timeout=1000 -c transaction_timeout=20s -c idle_in_transaction_session_timeout=2s";
    const pool = openPool(`${database.url}?options=${encodeURIComponent(options)}`);
    const found = await findings("timeouts", createPostgresStore({ client: pool }));
    expect(found.map(({ finding }) => finding)).toEqual([
      "statement_timeout of this role is 1000 ms",
      "transaction_timeout of this role is 20000 ms",
      "idle_in_transaction_session_timeout of this role is 2000 ms",
    ]);
    await pool.end();
  });

  it("rights and row_security of a role", async () => {
    expect(await findings("rights")).toEqual([]);
    expect(await findings("row_security")).toEqual([]);
    await database.query(`grant usage on schema txbox to ${role}; grant select on txbox.migration to ${role}`);
    const pool = openPool(as(database.url, role));
    const store = createPostgresStore({ client: pool });
    expect(await findings("rights", store)).toMatchObject([
      { severity: "error", finding: expect.stringMatching(/may neither enqueue/) },
    ]);
    await database.query(database.store.grants({ relay: role }));
    expect(await findings("rights", store)).toMatchObject([
      { severity: "info", finding: expect.stringMatching(/may enqueue, relay, and does not own the tables/) },
    ]);
    expect(await findings("long_transactions", store)).toMatchObject([
      { severity: "info", finding: expect.stringMatching(/^\d+ sessions of other roles are hidden/) },
    ]);
    await database.query("alter table txbox.message enable row level security");
    expect(await findings("row_security", store)).toMatchObject([
      { severity: "error", finding: expect.stringMatching(/applies to "txbox"\."message"/) },
    ]);
    await database.query("alter table txbox.message disable row level security");
    // What this role may not see is said, and hides nothing else.
    const all = await diagnose(store);
    expect(all.map(({ check }) => check)).toContain("rights");
    expect(all.map(({ check }) => check)).toContain("durability");
    await pool.end();
    await database.query(`drop owned by ${role}`);
  });

  it("restored_copy and position_counter of a copy", async () => {
    await using original = await fresh();
    await original.enqueue(series("a", 10));
    await createRelay({ store: original.store, name: "to-rabbit", publisher: createMemoryPublisher() }).drainOnce();
    expect(await findings("restored_copy", original.store)).toEqual([]);
    expect(await findings("position_counter", original.store)).toEqual([]);
    await using copy = await fresh();
    await copyRows(original.pool, copy.pool, { sequences: false });
    expect(await findings("restored_copy", copy.store)).toMatchObject([
      {
        severity: "error",
        finding: expect.stringMatching(/progress of to-rabbit/),
        fix: expect.stringMatching(/txbox rebase/),
      },
    ]);
    expect(await findings("position_counter", copy.store)).toMatchObject([{ severity: "error" }]);
    await copy.store.rebase();
    expect(await findings("restored_copy", copy.store)).toEqual([]);
    expect(await findings("position_counter", copy.store)).toEqual([]);
    // Ids of a server that had run for longer, and no relay yet.
    await using younger = await fresh();
    await younger.query(
      `insert into txbox.message (xid, size, lane, id, stream, type, payload) values ('4000000000', 1, 0, 'x', 's', 't', '1')`,
    );
    expect(await findings("restored_copy", younger.store)).toMatchObject([
      { finding: expect.stringMatching(/has not reached \(4000000000\)/) },
    ]);
  });

  it("retention held back, and maintenance that does not run", async () => {
    await using old = await fresh();
    const quick = createPostgresStore({ client: old.pool, segmentMs: 1 });
    await createRelay({
      store: old.store,
      name: "to-rabbit",
      publisher: createMemoryPublisher(),
      maintenance: false,
    }).drainOnce();
    await old.enqueue(series("a", 3));
    expect(await findings("maintenance", old.store)).toEqual([]);
    await old.query("update txbox.segment set opened_at = now() - interval '4 days' where opened_at is not null");
    expect(await findings("maintenance", old.store)).toMatchObject([
      { finding: expect.stringMatching(/open for 4 days: maintenance does not run/) },
    ]);
    await quick.maintenance.run();
    expect(await findings("maintenance", old.store)).toEqual([]);
    expect(await findings("retention", old.store)).toEqual([]);
    await old.query("update txbox.segment set closed_at = now() - interval '9 days' where closed_at is not null");
    expect(await findings("retention", old.store)).toMatchObject([
      {
        finding: expect.stringMatching(/closed 9 days ago and is kept for to-rabbit/),
        fix: expect.stringMatching(/relays drop to-rabbit/),
      },
    ]);
    await createRelay({
      store: old.store,
      name: "to-rabbit",
      publisher: createMemoryPublisher(),
      maintenance: false,
    }).drainOnce();
    expect(await findings("retention", old.store)).toMatchObject([
      { finding: expect.stringMatching(/nothing needs it any more/) },
    ]);
    await old.query("update txbox.segment set archive_owner = '' where closed_at is not null");
    expect(await findings("retention", old.store)).toMatchObject([
      { finding: expect.stringMatching(/its archive is not written/), fix: expect.stringMatching(/archive: false/) },
    ]);
    await old.query("update txbox.segment set archive_owner = null");
    await old.store.maintenance.run();
    expect(await findings("retention", old.store)).toEqual([]);
  });

  it("receipt_days that are missing", async () => {
    await using inbox = await fresh();
    expect(await findings("receipt_days", inbox.store)).toEqual([]);
    await inbox.store.maintenance.run();
    expect(await findings("receipt_days", inbox.store)).toEqual([]);
    const day = String(await inbox.value("select to_char((now() at time zone 'utc')::date, 'YYYYMMDD')"));
    await inbox.query(`drop table txbox.receipt_${day}`);
    expect(await findings("receipt_days", inbox.store)).toMatchObject([
      { severity: "warning", finding: `There is no partition for receipts of ${day}` },
    ]);
  });

  it("stuck_keys, parked_messages, invalid_indexes and jit", async () => {
    await using stuck = await fresh();
    const consumer = await joined(
      stuck.store,
      { relay: "to-rabbit", maxParked: 2 },
      {
        judge: ({ key }) =>
          key === "a" ? retry(6, 60_000, "no such queue") : key === "b" ? dead(10, true) : PUBLISHED,
      },
    );
    expect(await findings("stuck_keys", stuck.store)).toEqual([]);
    expect(await findings("parked_messages", stuck.store)).toEqual([]);
    await stuck.enqueue([...series("a", 1), ...series("b", 2), ...series("c", 1)]);
    await consumer.drain();
    expect(await findings("stuck_keys", stuck.store)).toMatchObject([
      {
        finding: expect.stringMatching(
          /^Key a of \w+ has failed 6 times at relay to-rabbit \(one of 1\): no such queue/,
        ),
      },
      { finding: expect.stringMatching(/^Key b of \w+ stands still at relay to-rabbit behind a dead letter/) },
    ]);

    expect(await findings("parked_messages", stuck.store)).toMatchObject([
      { severity: "error", finding: 'Relay "to-rabbit" has 2 messages behind failed ones; `maxParked` is 2' },
    ]);
    expect(await findings("invalid_indexes", stuck.store)).toEqual([]);
    await stuck.query(
      "insert into txbox.batch (relay, upto, after, lanes, messages, prev, cur) select 'to-rabbit', n, 0, 0, 0, '1:1:', '1:1:' from generate_series(1, 2) n",
    );
    await expect(stuck.query("create unique index concurrently half on txbox.batch (relay)")).rejects.toThrow(/unique/);
    expect(await findings("invalid_indexes", stuck.store)).toMatchObject([
      {
        finding: "Index txbox.half of txbox.batch is invalid",
        fix: expect.stringMatching(/reindex index concurrently txbox\.half/),
      },
    ]);

    await using many = await fresh();
    expect(await findings("jit", many.store)).toEqual([]);
    const quick = createPostgresStore({ client: many.pool, segmentMs: 1, retentionMs: DAY_MS });
    for (let i = 0; i < 21; i++) {
      await many.enqueue(series("a", 1));
      await sleep(2);
      await quick.maintenance.run();
    }
    const eager = openPool(`${many.url}?options=${encodeURIComponent("-c jit=on")}`);
    expect(await findings("jit", createPostgresStore({ client: eager }))).toMatchObject([
      { severity: "info", finding: expect.stringMatching(/log has 2\d segments/) },
    ]);
    await eager.end();
  });

  it("relays that are paused, that no process runs, that make no progress, and dead letters that are old", async () => {
    await using on = await fresh();
    const store = on.store;
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store, name: "to-rabbit", publisher, maxAttempts: 1, maintenance: false });
    await relay.drainOnce();
    await on.enqueue(series("a", 3));
    expect(await findings("idle_relay", store)).toMatchObject([
      { severity: "error", finding: expect.stringMatching(/No process runs relay "to-rabbit", and 3 messages wait/) },
    ]);
    await store.admin.pause("to-rabbit");
    expect(await findings("idle_relay", store)).toEqual([]);
    expect(await findings("paused_relay", store)).toMatchObject([
      { severity: "warning", fix: "txbox relays resume to-rabbit" },
    ]);
    await store.admin.resume("to-rabbit");
    publisher.goDown();
    await relay.start();
    await until(async () => (await store.admin.relays())[0]?.lanes.some(({ owner }) => owner !== null) === true, {
      what: "an owner",
    });
    expect(await findings("idle_relay", store)).toEqual([]);
    expect(await findings("old_backlog", store)).toEqual([]);
    await on.query(
      "update txbox.message set created_at = created_at - interval '20 minutes', id = 'chosen ' || position",
    );
    expect(await findings("old_backlog", store)).toMatchObject([
      { severity: "error", finding: expect.stringMatching(/runs, and 3 messages wait, the first of them for 20 min/) },
    ]);
    publisher.heal();
    publisher.reject(() => true);
    await until(async () => (await store.admin.relays())[0]?.dead === 3, { what: "dead letters" });
    expect(await findings("dead_letters", store)).toEqual([]);
    await on.query("update txbox.dead set died_at = died_at - interval '3 days'");
    expect(await findings("dead_letters", store)).toMatchObject([
      { severity: "warning", finding: expect.stringMatching(/has 3 dead letters, the first of them for 3 days/) },
    ]);
    await relay.stop();
  });

  it("unread_streams and failed_receipts", async () => {
    await using on = await fresh();
    await on.enqueue(series("a", 3));
    expect(await findings("unread_streams", on.store)).toMatchObject([
      {
        severity: "warning",
        finding: expect.stringMatching(/^No relay reads the stream orders, and its first message has waited/),
        fix: expect.stringMatching(/txbox relay/),
      },
    ]);
    expect((await runCli(["doctor", "--database-url", on.url, "--only", "unread_streams"])).code).toBe(6);
    const publisher = createMemoryPublisher();
    await createRelay({ store: on.store, name: "elsewhere", publisher, streams: ["others"] }).drainOnce();
    expect(await findings("unread_streams", on.store)).toHaveLength(1);
    await createRelay({ store: on.store, name: "r", publisher, streams: ["orders"] }).drainOnce();
    expect(await findings("unread_streams", on.store)).toEqual([]);

    const inbox = createInbox({ store: on.store, consumer: "payments" });
    let works = false;
    inbox.on("t", async () => {
      if (!works) throw new Error("declined");
    });
    const message = incoming({ id: "m-1" });
    expect(await findings("failed_receipts", on.store)).toEqual([]);
    await expect(inbox.handle(message)).rejects.toThrow("declined");
    expect(await findings("failed_receipts", on.store)).toMatchObject([
      {
        severity: "warning",
        finding: 'Consumer "payments" has 1 receipt of a failed attempt',
        fix: expect.stringMatching(/--consumer payments/),
      },
    ]);
    works = true;
    await inbox.handle(message);
    expect(await findings("failed_receipts", on.store)).toEqual([]);
  });

  it("changes nothing, bounds each check, and lets none hide another", async () => {
    await using on = await fresh();
    const { store } = on;
    await on.enqueue(series("a", 3));
    await createRelay({ store, name: "r", publisher: createMemoryPublisher() }).drainOnce();
    const before = await everyRowOf(on);
    expect(before).toMatch(/\bn\W+3\b/);
    await diagnose(store);
    const hanging: Store = {
      ...store,
      checks: [
        { name: "hangs", looksAt: "nothing", needs: "server", run: () => new Promise(() => undefined) },
        {
          name: "throws",
          looksAt: "nothing",
          needs: "server",
          run: () => {
            throw new Error("broken");
          },
        },
        ...(store.checks ?? []),
      ],
    };
    // Enough for every other check.
    const timeoutMs = 3000;
    const found = await withDeadline(diagnose(hanging, { timeoutMs }), 60_000, "the findings");
    expect(found.map(({ check }) => check).sort()).toEqual(["durability", "hangs", "throws"]);
    expect(found.find(({ check }) => check === "hangs")?.finding).toMatch(/no answer within 3000 ms/);
    expect(await everyRowOf(on)).toEqual(before);
  });

  it("long_transactions and prepared_transactions that were left open", async () => {
    const pool = openPool(left.url);
    const store = createPostgresStore({ client: pool });
    await sleep(Math.max(0, 31_000 - (performance.now() - begunAt)));
    expect(await findings("long_transactions", store)).toMatchObject([
      {
        severity: "warning",
        finding: expect.stringMatching(/idle in transaction\) is open for \d+ (?:s|min); its last command: BEGIN$/),
        fix: expect.stringMatching(/pg_terminate_backend\(\d+\)/),
      },
    ]);
    expect(await findings("prepared_transactions", store)).toMatchObject([
      {
        finding: expect.stringMatching(/left 'behind' is open for \d+ (?:s|min)/),
        fix: expect.stringMatching(/rollback prepared 'left ''behind'''; or/),
      },
    ]);
    await forgotten.query("rollback");
    await forgotten.query("rollback prepared 'left ''behind'''");
    expect(await findings("long_transactions", store)).toEqual([]);
    expect(await findings("prepared_transactions", store)).toEqual([]);
    await pool.end();
  });

  it("was asked for everything that it looks at", () => {
    const all = checkList(database.store).map(({ name }) => name);
    expect([...provoked].sort()).toEqual(all.toSorted());
  });
});
