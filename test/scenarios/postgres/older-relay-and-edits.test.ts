import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { errorGroup } from "../../../src/core/error-group.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/index.ts";
import { dead, joined, PUBLISHED, type Consumer } from "../../../src/testing/store/consumer.ts";
import { payloads } from "../../../src/testing/store/enqueuing.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { poolAs04 } from "../../support/release-0.4.ts";

type AnyStore = Parameters<typeof joined>[0];

/** A process of 0.4 that has run since before the upgrade; one that starts afterwards is refused by its own check. */
describe.skipIf(!hasPostgres())("edits beside a relay of 0.4", () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let oldPool: pg.Pool;
  let store: PostgresStore<pg.PoolClient>;
  let oldStore: AnyStore;

  beforeEach(async () => {
    database = await testDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 8 });
    oldPool = poolAs04(database.url, 4);
    store = createPostgresStore({ client: pool });
    oldStore = createPostgresStore({ client: oldPool });
    await store.migrator.migrate();
  });
  afterEach(async () => {
    await Promise.all([pool.end(), oldPool.end()]);
    await database.drop();
  });

  const newStore = () => store as unknown as AnyStore;

  async function enqueue(...messages: { type: string; key: string; payload: unknown }[]): Promise<void> {
    const client = await pool.connect();
    await client.query("begin");
    await createOutbox({ store }).enqueue(
      client,
      messages.map((message) => ({ stream: "s", ...message })),
    );
    await client.query("commit");
    client.release();
  }

  /** Two messages of a key; the first is dead and holds the second. */
  async function withLetter(consumer: Consumer): Promise<string> {
    consumer.judge = () => dead(1, true, "poison 1");
    await enqueue({ type: "t", key: "k", payload: 1 }, { type: "t", key: "k", payload: 2 });
    for (let i = 0; i < 50 && (await store.admin.dead({})).length === 0; i++) {
      await consumer.session.tend();
      await consumer.drain();
    }
    return (await store.admin.dead({}))[0]!.id;
  }

  it("are refused while it works, and the letter stays as it is", async () => {
    const old = await joined(oldStore, { owner: "old-process" });
    const id = await withLetter(old);
    await expect(store.admin.edit({ relay: "r", id }, { payload: "mended" })).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("old-process"),
      fix: expect.stringContaining("0.5"),
    });
    expect((await store.admin.dead({}))[0]).toMatchObject({ edited: false, command: null });
    await store.admin.requeue({ id });
    old.judge = () => PUBLISHED;
    expect(payloads(await old.take(2))).toEqual([1, 2]);
  });

  it("are delivered only by a process that knows them, though the old one comes back", async () => {
    const old = await joined(oldStore, { owner: "old-process", leaseMs: 500 });
    const id = await withLetter(old);
    // Paused past its lease, with its lanes.
    await sleep(700);
    await store.admin.edit({ relay: "r", id }, { payload: "mended" });
    await store.admin.requeue({ id });
    old.judge = () => PUBLISHED;
    for (let i = 0; i < 30; i++) {
      await old.session.tend().catch(() => undefined);
      await old.drain().catch(() => undefined);
      await sleep(20);
    }
    expect(old.published).toEqual([]);
    expect((await store.admin.dead({}))[0]?.command).toBe("requeue");
    const knowing = await joined(newStore(), { owner: "new-process" });
    expect(payloads(await knowing.take(2))).toEqual(["mended", 2]);
    expect(old.published).toEqual([]);
  });

  it("are not handed over to it", async () => {
    const knowing = await joined(newStore(), { owner: "new-process" });
    const id = await withLetter(knowing);
    await store.admin.edit({ relay: "r", id }, { payload: "mended" });
    await store.admin.requeue({ id });
    // Carried out, and tried once.
    knowing.judge = () => ({ status: "retry", error: "not yet", attempts: 1, delayMs: 0 });
    for (let i = 0; i < 50 && (await store.admin.find({ id }))[0]?.status !== "retrying"; i++) {
      await knowing.session.tend();
      await knowing.step();
    }
    const old = await joined(oldStore, { owner: "old-process" });
    for (let i = 0; i < 10; i++) {
      await knowing.session.tend();
      expect((await old.session.tend()).lanes).toBe(0);
    }
    await knowing.session.leave();
    for (let i = 0; i < 40; i++) {
      expect((await old.session.tend()).lanes).toBe(0);
      expect(await old.drain()).toEqual([]);
      await sleep(100);
    }
    const next = await joined(newStore(), { owner: "next-process" });
    expect(payloads(await next.take(2, 15_000))).toEqual(["mended", 2]);
    // Relays without edits are not affected.
    const another = await joined(oldStore, { owner: "old-process", relay: "another" });
    expect(payloads(await another.take(2, 15_000))).toEqual([1, 2]);
  });

  it("wait for lanes that it is taking at this moment", async () => {
    const knowing = await joined(newStore(), { owner: "new-process" });
    const id = await withLetter(knowing);
    await knowing.session.leave();
    // The old process is in the middle of its statement.
    await pool.query(
      "insert into txbox.member (relay, owner, lease_until) values ('r', 'old-process', clock_timestamp() + interval '1 minute')",
    );
    const client = await pool.connect();
    await client.query("begin");
    await client.query(`with c as (update txbox.cursor set epoch = epoch + 1, seq = seq + 1, stamp = pg_current_xact_id() where relay = 'r' returning *),
        part as (insert into txbox.cursor (relay, owner, epoch, token, seq, lease_until, prev)
          select relay, 'old-process', epoch, gen_random_uuid(), seq, clock_timestamp() + interval '1 minute', prev from c limit 1 returning id)
      update txbox.lane l set cursor_id = part.id from part where l.relay = 'r' and l.lane < 10`);
    const edit = store.admin.edit({ relay: "r", id }, { payload: "mended" });
    edit.catch(() => undefined);
    await sleep(300);
    await client.query("commit");
    client.release();
    await expect(edit).rejects.toMatchObject({ code: "conflict" });
  });

  it("has letters in groups, also those that die again by it", async () => {
    const old = await joined(oldStore);
    old.judge = () => dead(1, false, "refused by 10.0.0.1");
    await enqueue({ type: "t", key: "a", payload: 1 }, { type: "t", key: "b", payload: 2 });
    for (let i = 0; i < 50 && (await store.admin.dead({})).length < 2; i++) await old.drain();
    const [one, two] = ["refused by 10.0.0.2", "it has no price"].map((error) => errorGroup("t", error));
    const groups = async () => (await store.admin.deadGroups({})).map(({ group, count }) => [group, count]);
    const stored = async () => (await pool.query("select count(error_group)::int as n from txbox.dead")).rows[0].n;
    expect(await groups()).toEqual([[one, 2]]);
    expect((await store.admin.dead({ group: one! })).length).toBe(2);
    expect(await stored()).toBe(0);
    await store.maintenance.run();
    expect(await stored()).toBe(2);
    expect(await groups()).toEqual([[one, 2]]);
    await store.admin.requeue({ key: "a" });
    old.judge = () => dead(1, false, "it has no price");
    for (let i = 0; i < 50 && (await groups()).length < 2; i++) {
      await old.session.tend();
      await old.drain();
    }
    expect(new Map((await groups()) as [string, number][])).toEqual(
      new Map([
        [one, 1],
        [two, 1],
      ]),
    );
    expect(await store.admin.requeue({ group: two! })).toBe(1);
    expect((await store.admin.dead({ key: "a" }))[0]?.command).toBe("requeue");
  });
});
