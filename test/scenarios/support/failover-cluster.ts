import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { expect } from "vitest";
import type { AnyEvents } from "../../../src/core/message.ts";
import { createOutbox, type Outbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcp-proxy.ts";
import { openPool } from "./outbox-database.ts";
import { type StandbyServer, startStandby } from "./standby-server.ts";

const STANDBY = "standby_1";
const KEYS = 6;
const WRITERS = 8;

export interface FailoverOptions {
  readonly replication: "synchronous" | "asynchronous";
  readonly slots: "kept on the standby" | "on the primary only";
}

/** Numbers of a key, without a gap, each in the transaction of its message. */
export interface Row {
  readonly key: string;
  readonly n: number;
  readonly id: string;
}

/** Writers that go on with whatever server the address leads to. What they were told has committed stays in `told`. */
export function failoverWriters(url: string, outbox: Outbox<AnyEvents, object>) {
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

export async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2000, query_timeout: 5000 });
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

export interface FailoverCluster {
  readonly primary: PostgresServer;
  readonly standby: StandbyServer;
  readonly proxy: TcpProxy;
  /** Leads to the present primary. */
  readonly url: string;
  /** Of the first primary. */
  readonly pool: pg.Pool;
  readonly outbox: Outbox<AnyEvents, object>;
}

/** A primary and its standby, behind one address that leads to the present primary. */
export async function failoverCluster({ replication, slots }: FailoverOptions): Promise<FailoverCluster> {
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
export async function slotIsKept(primary: pg.Pool, standby: StandbyServer): Promise<void> {
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
export async function cutReplication(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ pid: number }>(
    "select pid from pg_stat_replication where application_name = $1",
    [STANDBY],
  );
  expect(rows).toHaveLength(1);
  process.kill(rows[0]!.pid, "SIGSTOP");
}

export async function promoted(standby: StandbyServer): Promise<pg.Pool> {
  await standby.promote();
  const pool = openPool(standby.url, 4);
  const isPrimary = async () => {
    const answer = await pool.query<{ r: boolean }>("select pg_is_in_recovery() as r").catch(() => undefined);
    return answer?.rows[0]?.r === false;
  };
  await until(isPrimary, { what: "the promotion", timeoutMs: 60_000 });
  return pool;
}
