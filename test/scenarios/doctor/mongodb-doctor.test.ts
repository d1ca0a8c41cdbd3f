import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type ClientSession, MongoClient } from "mongodb";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { checkList } from "../../../src/doctor/diagnose.ts";
import { createInbox, createRelay, diagnose, type Diagnosis, type Store } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { dead, joined, PUBLISHED, retry } from "../../../src/testing/store/consumer.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { incoming } from "../../support/inbox-delivery.ts";
import { type MongoDatabase, mongoDatabase } from "../../support/mongodb-database.ts";
import { mongoScene } from "../../support/mongodb-scene.ts";
import { runCli } from "../../support/run-cli.ts";
import { fakedTime } from "./faked-time.ts";

/** A small oplog, checkpoints every second, and transactions that may stay open for long. */
const ARGS = ["--oplogSize", "2", "--syncdelay", "1", "--setParameter", "transactionLifetimeLimitSeconds=3600"];

let slot: ServerSlot<MongodbServer>;
let database: MongoDatabase;
let forgotten: ClientSession;
let begunAt: number;
const provoked = new Set<string>();

beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true, args: ARGS }));
  if (slot.skipped) return;
  database = await mongoDatabase(slot.server.url);
  await createMongoStore({ client: database.client }).migrator.migrate();
  // Left open from here on, as by a person who forgot it.
  forgotten = database.client.startSession();
  forgotten.startTransaction();
  await database.client.db().collection("orders").insertOne({ n: 1 }, { session: forgotten });
  begunAt = performance.now();
}, 240_000);
beforeEach(({ skip }) => skip(slot.skipped, slot.reason));
afterAll(async () => {
  await forgotten?.endSession();
  await database?.[Symbol.asyncDispose]();
  await slot.stop();
});

/** What the doctor says under this name, which is what the test is about. */
async function findings(check: string, store?: Store): Promise<Diagnosis[]> {
  provoked.add(check);
  const found = await diagnose(store ?? createMongoStore({ client: database.client }), { only: [check] });
  for (const { finding, consequence, fix } of found) {
    expect(consequence).toMatch(/\w{3}/);
    expect(fix).toMatch(/\w{3}/);
    expect(finding).not.toMatch(/could not be looked at|undefined|null|NaN/);
  }
  return found;
}

describe("the doctor on MongoDB", () => {
  it("finds nothing where nothing is wrong, and what stops everything else", async () => {
    await using on = await mongoScene(slot.server.url);
    expect(await diagnose(on.store)).toEqual([]);
    const { code, stdout } = await runCli(["doctor", "--database-url", on.database.url]);
    expect(stdout).toMatch(/checks, nothing found/);
    expect(code).toBe(0);
    provoked.add("connection").add("schema");
    const away = await runCli(["doctor", "--database-url", "mongodb://127.0.0.1:1/x", "--json"], { timeoutMs: 40_000 });
    expect(away.code).toBe(4);
    await on.database.client.db().collection("outbox").dropIndex("txbox_ready");
    expect(await diagnose(on.store)).toMatchObject([
      {
        check: "schema",
        finding: expect.stringMatching(/txbox_ready of outbox is missing/),
        fix: "Run `txbox migrate`",
      },
    ]);
  });

  it("replica_set: a standalone server", async () => {
    expect(await findings("replica_set")).toEqual([]);
    await using alone = await startMongodb({ standalone: true });
    const client = await new MongoClient(alone.url).connect();
    expect(await findings("replica_set", createMongoStore({ client }))).toMatchObject([
      { severity: "error", fix: expect.stringMatching(/rs\.initiate/) },
    ]);
    const without = createMongoStore({ client, transactions: false });
    await without.migrator.migrate();
    expect(await diagnose(without)).toMatchObject([{ check: "replica_set", severity: "info" }]);
    await client.close();
  });

  it("clock_skew: a process whose clock is wrong", async () => {
    provoked.add("clock_skew");
    const args = ["doctor", "--database-url", database.url, "--only", "clock_skew", "--json"];
    const wrong = await runCli(args, { env: await fakedTime("-3h") });
    expect(wrong.code, wrong.stderr).toBe(6);
    expect(wrong.json).toMatchObject({
      findings: [
        { check: "clock_skew", severity: "error", finding: expect.stringMatching(/10[78]\d\d(?:\.\d)? s behind/) },
      ],
    });
    expect((await runCli(args)).code).toBe(0);
  });

  it("client_options that weaken transactions", async () => {
    expect(await findings("client_options")).toEqual([]);
    const client = new MongoClient(database.url, { w: 1, readPreference: "secondaryPreferred" });
    expect((await findings("client_options", createMongoStore({ client }))).map(({ finding }) => finding)).toEqual([
      "The client's write concern is w: 1",
      'The client\'s read preference is "secondaryPreferred"',
    ]);
    await client.close();
  });

  it("ttl: a monitor that is off, and an index that keeps for another time", async () => {
    expect(await findings("ttl")).toEqual([]);
    const admin = database.client.db("admin");
    await admin.command({ setParameter: 1, ttlMonitorEnabled: false });
    expect(await findings("ttl")).toMatchObject([{ severity: "error", finding: "The server's TTL monitor is off" }]);
    await admin.command({ setParameter: 1, ttlMonitorEnabled: true });
    const index = { name: "txbox_done", expireAfterSeconds: 3600 };
    await database.client.db().command({ collMod: "outbox", index });
    expect(await findings("ttl")).toMatchObject([
      {
        severity: "info",
        finding: expect.stringMatching(/keeps documents for 60 min, retentionMs of this store says 7 days/),
      },
    ]);
  });

  it("oplog_window: an oplog that holds little", async () => {
    const filler = database.client.db("other").collection("filler");
    const large = "x".repeat(100_000);
    await until(
      async () => {
        await filler.insertMany(Array.from({ length: 50 }, () => ({ large })));
        return (await diagnose(createMongoStore({ client: database.client }), { only: ["oplog_window"] })).length > 0;
      },
      { what: "a full oplog", timeoutMs: 60_000 },
    );
    expect(await findings("oplog_window")).toMatchObject([
      { severity: "error", finding: expect.stringMatching(/^The oplog holds [\d.]+ m?s$/) },
    ]);
    await database.client.db("other").dropDatabase();
  });

  it("stuck_keys, parked_messages, and neglected relays and dead letters", async () => {
    await using on = await mongoScene(slot.server.url);
    const store: Store = on.store;
    const publisher = createMemoryPublisher();
    await createRelay({ store, name: "to-rabbit", publisher }).drainOnce();
    await on.enqueue("a1", "b1", "b2", "c1");
    expect(await findings("idle_relay", store)).toMatchObject([{ finding: expect.stringMatching(/4 messages wait/) }]);
    await store.admin.pause("to-rabbit");
    expect(await findings("paused_relay", store)).toMatchObject([{ severity: "warning" }]);
    await store.admin.resume("to-rabbit");
    expect(await findings("stuck_keys", store)).toEqual([]);
    const consumer = await joined(
      store as never,
      { relay: "to-rabbit", maxParked: 2 },
      {
        judge: ({ key }) =>
          key === "a" ? retry(6, 60_000, "no such queue") : key === "b" ? dead(10, true) : PUBLISHED,
      },
    );
    await consumer.drain();
    const outbox = on.database.client.db().collection("outbox");
    const created_at = new Date(Date.now() - 20 * 60_000);
    await outbox.updateMany({ key: "a" }, { $set: { attempts: 6, created_at, message_id: "chosen" } });
    expect(await findings("stuck_keys", store)).toMatchObject([
      { finding: expect.stringMatching(/^Key a of s has failed 6 times at relay to-rabbit: no such queue/) },
      { finding: expect.stringMatching(/^Key b of s stands still at relay to-rabbit behind a dead letter/) },
    ]);
    expect(await findings("parked_messages", store)).toMatchObject([{ severity: "error" }]);
    expect(await findings("old_backlog", store)).toMatchObject([{ finding: expect.stringMatching(/for 20 min/) }]);
    expect(await findings("dead_letters", store)).toEqual([]);
    const letters = on.database.client.db().collection("outbox_dead");
    await letters.updateMany({}, { $set: { died_at: new Date(Date.now() - 3 * 86_400_000) } });
    expect(await findings("dead_letters", store)).toMatchObject([{ finding: expect.stringMatching(/for 3 days/) }]);
    await consumer.session.leave();
  });

  it("unread_streams and failed_receipts", async () => {
    await using on = await mongoScene(slot.server.url);
    const store: Store = on.store;
    const publisher = createMemoryPublisher();
    await on.enqueue("a1");
    expect(await findings("unread_streams", store)).toMatchObject([
      { severity: "warning", finding: expect.stringMatching(/^No relay reads the stream s, and its first message/) },
    ]);
    await createRelay({ store, name: "elsewhere", publisher, streams: ["others"] }).drainOnce();
    expect(await findings("unread_streams", store)).toHaveLength(1);
    await createRelay({ store, name: "to-rabbit", publisher, streams: ["s"] }).drainOnce();
    expect(await findings("unread_streams", store)).toEqual([]);

    const inbox = createInbox({ store: on.store, consumer: "payments" });
    let works = false;
    inbox.on("t", async () => {
      if (!works) throw new Error("declined");
    });
    const message = incoming({ id: "m-1" });
    expect(await findings("failed_receipts", store)).toEqual([]);
    await expect(inbox.handle(message)).rejects.toThrow("declined");
    expect(await findings("failed_receipts", store)).toMatchObject([
      { severity: "warning", finding: 'Consumer "payments" has 1 receipt of a failed attempt' },
    ]);
    works = true;
    await inbox.handle(message);
    expect(await findings("failed_receipts", store)).toEqual([]);
  });

  it("wake_up: a role that may not open change streams, which hides nothing else", async () => {
    expect(await findings("wake_up")).toEqual([]);
    const folder = mkdtempSync(join(tmpdir(), "txbox-keyfile-"));
    const keyFile = join(folder, "key");
    writeFileSync(keyFile, "a shared secret of the members", { mode: 0o400 });
    await using guarded = await startMongodb({ owned: true, args: ["--keyFile", keyFile] });
    const root = await new MongoClient(guarded.url).connect();
    await root.db("admin").command({ createUser: "root", pwd: "root", roles: ["root"] });
    await root.close();
    const url = (user: string): string =>
      Object.assign(new URL(guarded.url), {
        username: user,
        password: user,
        pathname: "/app",
        search: "?authSource=admin",
      }).href;
    const administrator = await new MongoClient(url("root")).connect();
    await createMongoStore({ client: administrator }).migrator.migrate();
    const resource = { db: "app", collection: "" };
    const actions = ["find", "insert", "update", "remove", "listIndexes"];
    const admin = administrator.db("admin");
    await admin.command({ createRole: "bare", privileges: [{ resource, actions }], roles: [] });
    await admin.command({ createUser: "bare", pwd: "bare", roles: ["bare"] });
    const client = await new MongoClient(url("bare")).connect();
    const store = createMongoStore({ client });
    expect(await findings("wake_up", store)).toMatchObject([
      {
        severity: "warning",
        finding: expect.stringMatching(/cannot be opened: .*not authorized/),
        fix: expect.stringMatching(/changeStream/),
      },
    ]);
    const all = await diagnose(store);
    expect(
      all
        .filter(({ finding }) => finding.includes("could not be looked at"))
        .map(({ check }) => check)
        .sort(),
    ).toEqual([
      "failed_receipts",
      "long_transactions",
      "majority",
      "oplog_window",
      "replication_lag",
      "ttl",
      "unread_streams",
    ]);
    expect(all.filter(({ check }) => check === "wake_up")).toHaveLength(1);
    await client.close();
    await administrator.close();
    rmSync(folder, { recursive: true });
  });

  it("long_transactions that were left open", async () => {
    await sleep(Math.max(0, 31_000 - (performance.now() - begunAt)));
    expect(await findings("long_transactions")).toMatchObject([
      {
        severity: "warning",
        finding: expect.stringMatching(/is open for \d+ (?:s|min)/),
        fix: expect.stringMatching(/UUID\("[0-9a-f]{32}"\)/),
      },
    ]);
    await forgotten.abortTransaction();
    expect(await findings("long_transactions")).toEqual([]);
  });

  it("replication_lag and majority: a member that is behind, then away", async () => {
    await using first = await startMongodb({ owned: true, member: true });
    await using second = await startMongodb({ owned: true, member: true });
    await using arbiter = await startMongodb({ owned: true, member: true });
    const client = await new MongoClient(`mongodb://127.0.0.1:${first.port}/?directConnection=true`, {
      w: 1,
    }).connect();
    const member = (_id: number, { port }: MongodbServer, more = {}) => ({ _id, host: `127.0.0.1:${port}`, ...more });
    const members = [
      member(0, first, { priority: 2 }),
      member(1, second, { priority: 0, secondaryDelaySecs: 3600 }),
      member(2, arbiter, { arbiterOnly: true, priority: 0 }),
    ];
    const settings = { electionTimeoutMillis: 2000 };
    await client.db("admin").command({ replSetInitiate: { _id: "rs0", members, settings } });
    const admin = client.db("admin");
    const states = async (): Promise<number[]> =>
      ((await admin.command({ replSetGetStatus: 1 }))["members"] as { state: number }[]).map(({ state }) => state);
    await until(async () => JSON.stringify(await states()) === "[1,2,7]", { what: "a replica set", timeoutMs: 60_000 });
    await until(async () => (await admin.command({ hello: 1 }))["isWritablePrimary"] === true, { what: "a primary" });
    const store = createMongoStore({ client, database: "app" });
    expect(await findings("majority", store)).toEqual([]);
    const notes = client.db("app").collection("notes");
    await until(
      async () => {
        await notes.insertOne({ n: 1 }, { writeConcern: { w: 1 } });
        return (await diagnose(store, { only: ["replication_lag"] })).length > 0;
      },
      { what: "a member that is behind", timeoutMs: 60_000, intervalMs: 500 },
    );
    expect(await findings("replication_lag", store)).toMatchObject([
      {
        severity: "warning",
        finding: expect.stringMatching(new RegExp(`127\\.0\\.0\\.1:${second.port} is [\\d.]+ m?s behind`)),
      },
    ]);
    await second.kill();
    await until(async () => (await diagnose(store, { only: ["majority"] })).length > 0, {
      what: "a member that is away",
      timeoutMs: 60_000,
    });
    expect(await findings("majority", store)).toMatchObject([
      {
        severity: "error",
        finding: expect.stringMatching(/1 of 3 members hold data and answer, 2 are needed; away: 127/),
      },
    ]);
    await client.close();
  });

  it("was asked for everything that it looks at", () => {
    const all = checkList(createMongoStore({ client: database.client })).map(({ name }) => name);
    expect([...provoked].sort()).toEqual(all.toSorted());
  });
});
