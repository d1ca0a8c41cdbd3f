import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/index.ts";
import { slotName } from "../../../src/stores/postgres/wal/wal-slot.ts";
import { postgresNames } from "../../../src/stores/postgres/postgres-names.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { relayProcess } from "../support/relay-process.ts";
import { type Streaming, verdict, walScene, writers } from "../support/wal-scene.ts";

const NAMES = postgresNames({ schema: "txbox", tablePrefix: "" });
const NONE = { lost: 0, doubled: 0, reordered: 0 };

describe.skipIf(!hasPostgres())("a relay that cannot stream polls, says why once, and leaves no slot behind", () => {
  const scene = walScene({ settings: { max_wal_senders: "4", max_replication_slots: "2" } });

  const delivers = async (store: PostgresStore, { publisher }: Streaming, from = 1): Promise<void> => {
    await scene.enqueue(store, series("k", 20, from));
    await until(() => publisher.sent.at(-1)?.n === from + 19, { what: "delivery by polling" });
  };
  const slotOf = async (): Promise<string> => {
    const [row] = await scene.query<{ name: string }>("select current_database() as name");
    return slotName(row!.name, NAMES, "r");
  };

  it("without the publication; it streams as soon as there is one", async () => {
    const store = await scene.open({ enabled: false });
    const streaming = await scene.start(store);
    await delivers(store, streaming);
    await until(() => streaming.lost() !== undefined, { what: "the reason" });
    expect(streaming.lost()).toMatch(/txbox wal enable/);
    expect(await scene.slots()).toEqual([]);
    await sleep(2500);
    expect(streaming.events.filter(({ type }) => type === "stream_lost")).toHaveLength(1);
    expect((await store.wal.enable()).ready).toBe(true);
    await streaming.streams();
    await delivers(store, streaming, 21);
    expect(verdict(streaming.publisher, new Map([["k", 40]]))).toEqual(NONE);
  }, 60_000);

  it("with a publication that was changed under load: the audit finds what the stream left out", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    await streaming.streams();
    await delivers(store, streaming);
    await scene.query("alter publication txbox set (publish = 'update')");
    await scene.enqueue(store, series("hidden", 10));
    await scene.query("alter publication txbox set (publish = 'insert')");
    await scene.enqueue(store, series("k", 5, 21));
    await until(() => streaming.publisher.sent.length === 35, { what: "what was hidden", timeoutMs: 20_000 });
    expect(streaming.lost()).toMatch(/has the publication txbox been changed/i);
    expect(streaming.lost()).toMatch(/txbox wal disable/);
    await streaming.streams();
    expect(
      verdict(
        streaming.publisher,
        new Map([
          ["k", 25],
          ["hidden", 10],
        ]),
      ),
    ).toEqual(NONE);
  }, 60_000);

  it("when another program has a slot of this name", async () => {
    const store = await scene.open();
    const name = await slotOf();
    await scene.query("select pg_create_physical_replication_slot($1)", [name]);
    const streaming = await scene.start(store);
    await delivers(store, streaming);
    await until(() => streaming.lost() !== undefined, { what: "the reason" });
    expect(streaming.lost()).toMatch(new RegExp(`${name} belongs to something else`));
    await streaming.relay.stop();
    // Not ours to drop.
    expect((await scene.slots()).map(({ slot_name }) => slot_name)).toEqual([name]);
  }, 60_000);

  it("when every slot or every sender of the server is taken", async () => {
    const store = await scene.open();
    for (const n of [1, 2]) await scene.query("select pg_create_physical_replication_slot($1)", [`taken_${n}`]);
    const streaming = await scene.start(store);
    await delivers(store, streaming);
    await until(() => /max_replication_slots/.test(streaming.lost() ?? ""), { what: "the reason" });
    await scene.query("select pg_drop_replication_slot(slot_name) from pg_replication_slots");
    await streaming.streams();
    await delivers(store, streaming, 21);
  }, 60_000);

  it("when its role may not replicate", async () => {
    const store = await scene.open();
    const role = `plain_${Date.now() % 1_000_000}`;
    await scene.query(`create role ${role} login`);
    await scene.query(store.grants({ relay: role }).replaceAll(/^--.*$/gm, ""));
    const url = new URL(scene.url);
    url.username = role;
    const pool = openPool(url.href, 4);
    const streaming = await scene.start(createPostgresStore({ client: pool }));
    await delivers(store, streaming);
    await until(() => streaming.lost() !== undefined, { what: "the reason" });
    expect(streaming.lost()).toMatch(/REPLICATION/);
    // With the attribute the rights of a relay are enough.
    await scene.query(`alter role ${role} replication`);
    await streaming.streams();
    await delivers(store, streaming, 21);
    await streaming.relay.stop();
    await pool.end();
    await scene.query(`drop owned by ${role}; `);
    await scene.query(`drop role ${role}`);
  }, 60_000);

  it("when its slot was made anew and starts later than what is left to read", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    const load = writers(scene.url, store, 2);
    const name = await slotOf();
    for (let round = 0; round < 3; round++) {
      await streaming.streams();
      await scene.dropSlot();
      await scene.query("select pg_create_logical_replication_slot($1, 'pgoutput')", [name]).catch(() => undefined);
      await sleep(150);
    }
    await load.stop();
    await until(() => streaming.publisher.sent.length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
  }, 90_000);

  it("when its slot was made anew while no process lived: that one is not gone on with", async () => {
    const store = await scene.open();
    const killed = relayProcess({ url: scene.url, name: "r", source: "stream", leaseMs: 1000 });
    await killed.waitForLine("ready");
    await until(() => killed.events("stream_started").length > 0, { what: "the stream", timeoutMs: 20_000 });
    await scene.enqueue(store, series("k", 5));
    await until(() => killed.sent().length === 5, { what: "the stream" });
    await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
    await killed.kill();
    const name = await slotOf();
    await scene.dropSlot();
    await scene.enqueue(store, series("k", 5, 6));
    await scene.query("select pg_create_logical_replication_slot($1, 'pgoutput')", [name]);
    const streaming = await scene.start(store);
    await delivers(store, streaming, 11);
    await streaming.streams();
    expect(streaming.events.at(-1)).toMatchObject({ type: "stream_started", from: "scan" });
    expect(streaming.publisher.firsts("k")).toEqual(series("k", 25, 6).map(({ n }) => n));
    expect(streaming.lost()).toBeUndefined();
  }, 60_000);

  it("when the slot keeps more of the log than it may, also while no process reads from it", async () => {
    await scene.open();
    const store = scene.openStore({ replication: { maxRetainedBytes: 16 * 1_048_576 } });
    const streaming = await scene.start(store);
    await streaming.streams();
    // An open transaction pins it, though everything is confirmed.
    const open = new pg.Client({ connectionString: scene.url });
    await open.connect();
    await open.query("begin; select pg_current_xact_id()");
    await scene.query("create table noise (text text)");
    await until(
      async () => {
        await scene.query("insert into noise select repeat('x', 1000) from generate_series(1, 4000)");
        return /maxRetainedBytes/.test(streaming.lost() ?? "");
      },
      { what: "the guard", timeoutMs: 40_000, intervalMs: 300 },
    );
    await delivers(store, streaming);
    await open.query("rollback");
    await open.end();
  }, 90_000);

  it.skipIf(!isLong)(
    "an idle log beside much traffic of others keeps little of the server's log",
    async () => {
      const store = await scene.open();
      const streaming = await scene.start(store);
      await streaming.streams();
      await delivers(store, streaming);
      await scene.query("create table noise (text text)");
      for (let second = 0; second < 14; second++) {
        await scene.query("insert into noise select repeat('x', 1000) from generate_series(1, 6000)");
        await sleep(1000);
      }
      await scene.query("checkpoint");
      const retained = async () => {
        const [row] = await scene.query<{ bytes: string }>(
          "select pg_current_wal_lsn() - restart_lsn as bytes from pg_replication_slots",
        );
        return Number(row?.bytes);
      };
      // The server writes what it needs to let go every 15 s.
      await until(async () => (await retained()) < 64 * 1_048_576, { what: "little to keep", timeoutMs: 40_000 });
      expect(streaming.events).toHaveLength(1);
    },
    90_000,
  );

  it.skipIf(!isLong)(
    "while the relay is paused for long the slot is given up",
    async () => {
      const store = await scene.open();
      const streaming = await scene.start(store);
      await streaming.streams();
      await store.admin.pause("r");
      await until(() => /paused/.test(streaming.lost() ?? ""), { what: "the end", timeoutMs: 45_000 });
      await until(async () => (await scene.slots()).length === 0, { what: "no slot" });
      await store.admin.resume("r");
      await delivers(store, streaming);
      await streaming.streams();
    },
    90_000,
  );

  it.each([
    ["three messages wait", 1, {}, /Nothing goes out/],
    ["more than memory is for", 10, { batchSize: 20, batchBytes: 8192 }, /cannot keep up/],
  ])(
    "while the target is out for long the slot is given up: %s",
    async (_, keys, options, reason) => {
      const store = await scene.open();
      const streaming = await scene.start(store, options);
      await streaming.streams();
      let out = true;
      streaming.publisher.before = () => {
        if (out) throw new Error("out");
      };
      const count = keys === 1 ? 3 : 100;
      const names = Array.from({ length: keys }, (__, n) => `k${n}`);
      for (const name of names) await scene.enqueue(store, series(name, count));
      await until(() => reason.test(streaming.lost() ?? ""), { what: "the end", timeoutMs: 50_000 });
      await until(async () => (await scene.slots()).length === 0, { what: "no slot", timeoutMs: 50_000 });
      out = false;
      await until(() => streaming.publisher.sent.length === keys * count, { what: "delivery", timeoutMs: 30_000 });
      await streaming.streams();
      expect(verdict(streaming.publisher, new Map(names.map((name) => [name, count])))).toEqual(NONE);
    },
    120_000,
  );

  it("a relay that is dropped takes its slot with it, also when a crash has left it", async () => {
    const store = await scene.open();
    const name = await slotOf();
    const streaming = await scene.start(store);
    await streaming.streams();
    await store.admin.drop("r");
    // Until it has noticed, it may make a slot anew.
    await until(() => !streaming.relay.state().running, { what: "the end of the relay", timeoutMs: 20_000 });
    await until(async () => (await scene.slots()).length === 0, { what: "no slot", timeoutMs: 20_000 });
    const another = await scene.start(store, { source: "polling" });
    await another.relay.stop();
    await scene.query("select pg_create_logical_replication_slot($1, 'pgoutput')", [name]);
    await store.admin.drop("r");
    expect(await scene.slots()).toEqual([]);
  }, 60_000);

  it("disabled while it streams, it goes on by polling", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    const load = writers(scene.url, store, 2);
    await streaming.streams();
    expect((await store.wal.disable()).publication.state).toBe("missing");
    await until(() => /txbox wal enable/.test(streaming.lost() ?? ""), { what: "the reason", timeoutMs: 20_000 });
    await sleep(300);
    await load.stop();
    await until(() => streaming.publisher.sent.length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(await scene.slots()).toEqual([]);
  }, 60_000);
});

describe.skipIf(!hasPostgres())("a server that cannot stream", () => {
  const scene = walScene({ settings: { wal_level: "replica" } });

  it("with another wal_level", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    await scene.enqueue(store, series("k", 5));
    await until(() => streaming.publisher.sent.length === 5, { what: "delivery by polling" });
    await until(() => streaming.lost() !== undefined, { what: "the reason" });
    expect(streaming.lost()).toMatch(/wal_level is replica/);
    expect((await store.wal.status()).missing.join()).toMatch(/wal_level/);
  });
});

describe.skipIf(!hasPostgres())("a server that throws its log away", () => {
  const scene = walScene({ settings: { max_slot_wal_keep_size: "16MB", min_wal_size: "32MB", max_wal_size: "32MB" } });

  it("invalidates a slot: it is dropped and made anew, and nothing is lost", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    await streaming.streams();
    const open = new pg.Client({ connectionString: scene.url });
    await open.connect();
    await open.query("begin; select pg_current_xact_id()");
    await scene.query("create table noise (text text)");
    const load = writers(scene.url, store, 1);
    await until(
      async () => {
        await scene.query("insert into noise select repeat('x', 1000) from generate_series(1, 8000)");
        await scene.query("checkpoint");
        return streaming.lost() !== undefined;
      },
      { what: "the loss of the slot", timeoutMs: 60_000, intervalMs: 100 },
    );
    await open.query("rollback");
    await open.end();
    await streaming.streams();
    await load.stop();
    await until(() => streaming.publisher.sent.length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
  }, 120_000);
});
