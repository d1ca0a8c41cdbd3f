import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createOutbox, type Outbox } from "../../../src/outbox/outbox.ts";
import type { PublishResult } from "../../../src/core/contracts.ts";
import type { AnyEvents } from "../../../src/core/message.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startPostgres } from "../../harness/start-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { startTcpProxy } from "../../support/tcp-proxy.ts";
import { openPool } from "../support/outbox-database.ts";
import { type ChildSent, type RelayProcess, relayProcess } from "../support/relay-process.ts";
import { type StandbyServer, startStandby } from "../support/standby-server.ts";
import { switchingPool } from "../support/switching-pool.ts";

const PUBLISHED: PublishResult = { status: "published" };
const STANDBY = "standby_1";
const KEYS = 6;
const WRITERS = 8;
const LEASE_MS = 1500;
/** What went out so long before the moment that is lost with a server may go out again: anchors come every 150 ms. */
const UNSETTLED_MS = 2000;

interface Case {
  readonly replication: "synchronous" | "asynchronous";
  /** Of the process that streams, at the moment of the failover. */
  readonly reader: "lives" | "is killed";
  readonly slots: "kept on the standby" | "on the primary only";
}

const CASES: readonly Case[] = [
  { replication: "synchronous", reader: "lives", slots: "kept on the standby" },
  { replication: "synchronous", reader: "is killed", slots: "on the primary only" },
  { replication: "asynchronous", reader: "lives", slots: "on the primary only" },
  { replication: "asynchronous", reader: "is killed", slots: "kept on the standby" },
];
const OTHER_CASES: readonly Case[] = [
  { replication: "synchronous", reader: "lives", slots: "on the primary only" },
  { replication: "synchronous", reader: "is killed", slots: "kept on the standby" },
  { replication: "asynchronous", reader: "lives", slots: "kept on the standby" },
  { replication: "asynchronous", reader: "is killed", slots: "on the primary only" },
];

/** Numbers of a key, without a gap, each in the transaction of its message. */
interface Row {
  readonly key: string;
  readonly n: number;
  readonly id: string;
}

/** Writers that go on with whatever server the address leads to. What they were told has committed stays in `told`. */
function writers(url: string, outbox: Outbox<AnyEvents, object>) {
  const stopping = new AbortController();
  const told: Row[] = [];
  const write = async (writer: number): Promise<void> => {
    for (let client: pg.Client | undefined, round = 0; !stopping.signal.aborted; round++) {
      try {
        client ??= await connected(url);
        const key = `k${(writer + round) % KEYS}`;
        const id = randomUUID();
        await client.query("begin");
        await client.query("select pg_advisory_xact_lock(hashtext($1))", [key]);
        const { rows } = await client.query<{ n: number }>(
          "insert into business select $1, coalesce(max(n), 0) + 1, $2 from business where key = $1 returning n",
          [key, id],
        );
        const { n } = rows[0]!;
        await outbox.enqueue(client, { stream: "orders", type: "changed", key, id, payload: { key, n } });
        if (round % 9 === 4) await client.query("rollback");
        else {
          await client.query("commit");
          told.push({ key, n, id });
        }
        await sleep(Math.random() * 10);
      } catch {
        void client?.end().catch(() => undefined);
        client = undefined;
        await sleep(50);
      }
      if (stopping.signal.aborted) await client?.end();
    }
  };
  const all = Array.from({ length: WRITERS }, (_, i) => write(i));
  return {
    told,
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.all(all);
    },
  };
}

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2000, query_timeout: 5000 });
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

/** A primary and its standby, behind one address that leads to the present primary. */
async function cluster({ replication, slots }: Case) {
  const primary = await startPostgres({ owned: true, settings: { wal_keep_size: "256MB" } });
  const proxy = await startTcpProxy(primary.port);
  const address = new URL(primary.url);
  address.port = String(proxy.port);
  const url = address.href;
  const pool = openPool(primary.url, 2);
  const store = createPostgresStore({ client: pool });
  await store.migrator.migrate();
  await store.wal.enable();
  await pool.query("create table business (key text, n int, id text not null, primary key (key, n))");
  const standby = await startStandby(primary, { name: STANDBY, syncsSlots: slots === "kept on the standby" });
  if (replication === "synchronous") {
    await pool.query(`alter system set synchronous_standby_names = '${STANDBY}'`);
    await pool.query("select pg_reload_conf()");
    const isSynchronous = async () => {
      const { rows } = await pool.query("select 1 from pg_stat_replication where sync_state = 'sync'");
      return rows.length > 0;
    };
    await until(isSynchronous, { what: "a synchronous standby", timeoutMs: 20_000 });
  }
  return { primary, standby, proxy, url, pool, outbox: createOutbox({ store }) };
}

/** The standby has a copy of the slot that outlives the promotion. */
async function slotIsKept(primary: pg.Pool, standby: StandbyServer): Promise<void> {
  const pool = openPool(standby.url, 1);
  const isKept = async () => {
    // The slot may begin no earlier than what the standby has; by itself the server writes this every 15 s.
    await primary.query("select pg_log_standby_snapshot()");
    const { rows } = await pool.query("select 1 from pg_replication_slots where synced and not temporary");
    return rows.length > 0;
  };
  try {
    await until(isKept, { what: "the slot on the standby", timeoutMs: 60_000, intervalMs: 200 });
  } finally {
    await pool.end();
  }
}

/** What is written from now on never reaches the standby. */
async function cutReplication(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ pid: number }>(
    "select pid from pg_stat_replication where application_name = $1",
    [STANDBY],
  );
  expect(rows).toHaveLength(1);
  process.kill(rows[0]!.pid, "SIGSTOP");
}

async function promoted(standby: StandbyServer): Promise<pg.Pool> {
  await standby.promote();
  const pool = openPool(standby.url, 4);
  const isPrimary = async () => {
    const answer = await pool.query<{ r: boolean }>("select pg_is_in_recovery() as r").catch(() => undefined);
    return answer?.rows[0]?.r === false;
  };
  await until(isPrimary, { what: "the promotion", timeoutMs: 60_000 });
  return pool;
}

const streams = (process: RelayProcess, after = 0): Promise<unknown> =>
  until(() => process.events("stream_started").length > after, { what: "the stream", timeoutMs: 40_000 });

describe.skipIf(!hasPostgres())("a standby is promoted while a relay streams", () => {
  it.each(isLong ? [...CASES, ...OTHER_CASES] : CASES)(
    "$replication, a reader that $reader, a slot $slots",
    async (which) => {
      const { replication, reader, slots } = which;
      const failoverSlot = slots === "kept on the standby";
      const { primary, standby, proxy, url, pool, outbox } = await cluster(which);
      const start = () => relayProcess({ url, name: "r", source: "stream", leaseMs: LEASE_MS, failoverSlot });
      const first = start();
      const processes = [first];
      let there: pg.Pool | undefined;
      try {
        await first.waitForLine("ready");
        await streams(first);
        if (reader === "is killed") {
          processes.push(start());
          await processes[1]!.waitForLine("ready");
        }
        const load = writers(url, outbox);
        if (failoverSlot) await slotIsKept(pool, standby);
        await until(() => load.told.length > 100, { what: "commits", timeoutMs: 20_000 });
        expect(first.events("stream_lost")).toEqual([]);
        const lostSince = Date.now();
        if (replication === "asynchronous") {
          await cutReplication(pool);
          const before = load.told.length;
          await until(() => load.told.length > before + 50, { what: "commits that will be lost", timeoutMs: 20_000 });
          await sleep(400);
        }
        const toldBefore = load.told.length;
        await Promise.all([primary.kill(), reader === "is killed" ? first.kill() : undefined]);
        there = await promoted(standby);
        proxy.leadTo(Number(new URL(standby.url).port));
        proxy.cut();
        await until(() => load.told.length > toldBefore + 100, {
          what: "commits on the new primary",
          timeoutMs: 60_000,
        });
        const last = processes.at(-1)!;
        // It says that the stream was lost, and that it is back.
        await streams(last, last === first ? 1 : 0);
        expect(last === first ? first.events("stream_lost").length : 1).toBeGreaterThan(0);
        // A slot that is kept on a standby is never ahead of the row, if commits wait for that standby.
        const from = last.events("stream_started").at(-1)!["from"];
        const expected = replication === "asynchronous" ? ["resume", "scan"] : [failoverSlot ? "resume" : "scan"];
        expect(expected).toContain(from);
        const more = load.told.length;
        await until(() => load.told.length > more + 50, { what: "commits that are streamed", timeoutMs: 20_000 });
        const { wal } = createPostgresStore({ client: there });
        const sources = async () => (await wal.status()).relays[0]!.processes.map(({ source }) => source);
        const isTold = async () => (await sources()).filter((source) => source === "stream").length === 1;
        await until(isTold, { what: "the stream in the status", timeoutMs: 10_000 });
        await load.stop();

        const { rows } = await there.query<Row>("select key, n, id from business order by key, n");
        const sent = () => processes.flatMap((one) => one.sent());
        const missing = () => {
          const ids = new Set(sent().map(({ id }) => id));
          return rows.filter(({ id }) => !ids.has(id));
        };
        await until(() => missing().length === 0, { what: "all that is committed", timeoutMs: 30_000 }).catch(
          () => undefined,
        );
        expect(missing()).toEqual([]);
        check(which, { rows, sent: sent(), told: load.told, lostSince });
      } finally {
        await Promise.all(processes.map((one) => one.kill()));
        await Promise.all([pool.end(), there?.end()]);
        await proxy.close();
        await standby[Symbol.asyncDispose]();
        await primary.stop();
      }
    },
    150_000,
  );

  it("nothing goes out of what only the old primary has, though the stream from it goes on", async () => {
    const { primary, standby, pool } = await cluster({
      replication: "asynchronous",
      reader: "lives",
      slots: "on the primary only",
    });
    // The application is led to the new primary; the replication connection still reads from the old one.
    const pools = switchingPool(openPool(primary.url, 5));
    const connect = () => new pg.Client({ connectionString: primary.url, replication: "database" } as pg.ClientConfig);
    const store = createPostgresStore({ client: pools.client, replication: { connect } });
    const sent: string[] = [];
    const events: string[] = [];
    const relay = createRelay({
      store,
      name: "r",
      source: "stream",
      // Long enough for the next look to come late.
      leaseMs: 30_000,
      maintenance: false,
      publisher: {
        keepsKeyOrder: true,
        publish: async (messages) => messages.map(({ id }) => (sent.push(id), PUBLISHED)),
      },
      onEvent: ({ type }) => void events.push(type),
    });
    let there: pg.Pool | undefined;
    try {
      await relay.start();
      await until(() => events.includes("stream_started"), { what: "the stream", timeoutMs: 20_000 });
      await pool.query("insert into business values ('k', 1, 'before')");
      await standby.caughtUp();
      // Both hand out the same transaction ids from here on.
      await cutReplication(pool);
      there = await promoted(standby);
      const outbox = createOutbox({ store: createPostgresStore({ client: there }) });
      const old = await connected(primary.url);
      const present = await connected(standby.url);
      const xid = async (client: pg.Client) =>
        (await client.query<{ xid: string }>("select pg_current_xact_id()::text as xid")).rows[0]!.xid;
      const enqueue = (client: pg.Client, id: string) =>
        outbox.enqueue(client, { stream: "orders", type: "changed", key: id, id, payload: {} });
      // The new primary shows the very transaction whose namesake the old one has.
      await old.query("begin");
      const wanted = BigInt(await xid(old));
      await enqueue(old, "old");
      while (BigInt(await xid(present)) < wanted);
      pools.use(openPool(standby.url, 5));
      await old.query("commit");
      await sleep(2500);
      expect(sent).not.toContain("old");
      await present.query("begin");
      await enqueue(present, "new");
      await present.query("commit");
      await until(() => sent.includes("new"), { what: "what the new primary has", timeoutMs: 40_000 });
      expect(sent).not.toContain("old");
      await Promise.all([old.end(), present.end()]);
    } finally {
      await relay.stop({ deadlineMs: 1000 });
      await Promise.all([pool.end(), there?.end()]);
      await standby[Symbol.asyncDispose]();
      await primary.kill();
      await primary.stop();
    }
  }, 120_000);

  it("that does not know the relay's place, with the slot: nothing overtakes what that place hides", async () => {
    const { primary, standby, pool } = await cluster({
      replication: "asynchronous",
      reader: "lives",
      slots: "kept on the standby",
    });
    const pools = switchingPool(openPool(primary.url, 5));
    const slow = slowLooks(pools.client);
    let url = primary.url;
    const connect = () => new pg.Client({ connectionString: url, replication: "database" } as pg.ClientConfig);
    const store = createPostgresStore({ client: slow.client, replication: { connect, failover: true } });
    const sent: string[] = [];
    const events: string[] = [];
    const relay = createRelay({
      store,
      name: "r",
      source: "stream",
      leaseMs: 30_000,
      maintenance: false,
      publisher: {
        keepsKeyOrder: true,
        publish: async (messages) => messages.map(({ id }) => (sent.push(id), PUBLISHED)),
      },
      onEvent: ({ type }) => void events.push(type),
    });
    const outbox = createOutbox({ store });
    const enqueue = async (client: pg.Client, id: string) => {
      await client.query("begin");
      await outbox.enqueue(client, { stream: "orders", type: "changed", key: "k", id, payload: {} });
      await client.query("commit");
    };
    const prev = async (client: { query: pg.Client["query"] }) =>
      BigInt(
        (await client.query<{ x: string }>("select pg_snapshot_xmax(prev)::text as x from txbox.cursor")).rows[0]!.x,
      );
    let promotedPool: pg.Pool | undefined;
    try {
      await relay.start();
      const started = () => events.filter((type) => type === "stream_started").length;
      await until(() => started() === 1, { what: "the stream", timeoutMs: 20_000 });
      const old = await connected(primary.url);
      let n = 0;
      const stir = setInterval(() => void enqueue(old, `early-${n++}`).catch(() => undefined), 200);
      await slotIsKept(pool, standby).finally(() => clearInterval(stir));
      await sleep(1000);
      await standby.caughtUp();
      await cutReplication(pool);
      // The relay's place moves on, and the standby does not hear of it.
      const known = await prev(old);
      for (let i = 0; i < 200; i++) await old.query("select pg_current_xact_id()");
      await until(
        async () => {
          await enqueue(old, randomUUID());
          return (await prev(old)) > known + 200n;
        },
        { what: "the anchors", intervalMs: 50 },
      );
      // Nothing is on its way any more.
      await sleep(1000);
      const place = await prev(old);
      slow.delayed = true;
      promotedPool = await promoted(standby);
      const present = await connected(standby.url);
      expect(await prev(present)).toBeLessThan(place - 100n);
      // Led to the new primary before anything has failed.
      url = standby.url;
      pools.use(openPool(standby.url, 5));
      await old.end();
      await primary.kill();
      await until(() => started() === 2, { what: "the stream from the new primary", timeoutMs: 20_000 }).catch(
        () => undefined,
      );
      await enqueue(present, "first");
      for (;;) {
        const { rows } = await present.query<{ x: string }>("select pg_current_xact_id()::text as x");
        if (BigInt(rows[0]!.x) > place) break;
      }
      await enqueue(present, "second");
      await until(() => sent.includes("first") && sent.includes("second"), { what: "both", timeoutMs: 40_000 });
      expect(sent.indexOf("first")).toBeLessThan(sent.indexOf("second"));
      await present.end();
    } finally {
      slow.delayed = false;
      await relay.stop({ deadlineMs: 1000 });
      await Promise.all([pool.end(), promotedPool?.end()]);
      await standby[Symbol.asyncDispose]();
      await primary.stop();
    }
  }, 150_000);
});

/** A process that is late to look around. */
function slowLooks(pool: PgPool): { client: PgPool; delayed: boolean } {
  const slow = {
    delayed: false,
    client: {
      async query(config: object) {
        if (slow.delayed && (config as { text: string }).text.includes("'timeline'")) await sleep(8000);
        return pool.query(config);
      },
      connect: () => pool.connect(),
      get totalCount() {
        return pool.totalCount;
      },
    } as PgPool,
  };
  return slow;
}

interface Outcome {
  readonly rows: readonly Row[];
  readonly sent: readonly ChildSent[];
  readonly told: readonly Row[];
  /** Nothing that was settled before is lost. */
  readonly lostSince: number;
}

function check({ replication }: Case, { rows, sent, told, lostSince }: Outcome): void {
  const committed = new Set(rows.map(({ id }) => id));
  const byTime = sent.toSorted((a, b) => a.at - b.at);
  const first = new Map<string, number>();
  for (const [i, { id }] of byTime.entries()) if (!first.has(id)) first.set(id, i);
  for (const [key, its] of Map.groupBy(rows, (row) => row.key)) {
    const order = its.map(({ id }) => first.get(id)!);
    expect(order, `first deliveries of ${key}`).toEqual(order.toSorted((a, b) => a - b));
  }
  const undone = told.filter(({ id }) => !committed.has(id));
  const ghosts = [...first.keys()].filter((id) => !committed.has(id));
  // Commits that wait for a standby are not lost, and nothing goes out of one that does.
  const isLossy = replication === "asynchronous";
  expect({ undone: undone.length > 0, ghosts: !isLossy && ghosts.length > 0 }).toEqual({
    undone: isLossy,
    ghosts: false,
  });
  // What was settled on the new primary as well does not come again.
  const times = new Map<string, number>();
  for (const { id } of sent) times.set(id, (times.get(id) ?? 0) + 1);
  for (const [id, count] of times) {
    if (count === 1) continue;
    expect(count).toBe(2);
    expect(byTime[first.get(id)!]!.at).toBeGreaterThan(lostSince - UNSETTLED_MS);
  }
}
