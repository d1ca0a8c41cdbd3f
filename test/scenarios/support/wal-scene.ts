import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, afterEach, beforeAll } from "vitest";
import { createOutbox, createRelay, type Relay, type RelayEvent, type RelayOptions } from "../../../src/index.ts";
import {
  createPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from "../../../src/stores/postgres/index.ts";
import { createDatabase, type TestDatabase } from "../../harness/create-database.ts";
import { until } from "../../harness/deadline.ts";
import { type PostgresOptions, type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { openPool, type Numbered } from "./outbox-database.ts";
import { RecordingPublisher } from "./recording-publisher.ts";

export type StreamEventOf = Extract<RelayEvent, { type: "stream_started" | "stream_lost" }>;

/** A relay that streams, with what it has told and sent. */
export interface Streaming {
  readonly relay: Relay;
  readonly publisher: RecordingPublisher;
  readonly events: StreamEventOf[];
  readonly failures: string[];
  /** Why there is no stream, as it was told last. */
  lost(): string | undefined;
  /** Resolves when its messages come by the stream. */
  streams(): Promise<void>;
}

/** A server of its own: slots wait for every transaction on it. Each test has a database. */
export function walScene(options: PostgresOptions = {}, start = startPostgres) {
  let server: PostgresServer;
  let database: TestDatabase;
  let pool: pg.Pool;
  const running: Relay[] = [];
  const pools: pg.Pool[] = [];

  beforeAll(async () => {
    server = await start({ owned: true, ...options });
  }, 60_000);
  afterAll(() => server.stop());
  afterEach(async () => {
    await Promise.all(running.splice(0).map((relay) => relay.stop({ deadlineMs: 5000 }).catch(() => undefined)));
    await Promise.all(pools.splice(0).map((one) => one.end()));
    await dropSlots(server.url);
    await database.drop();
  });

  const openStore = (more: Partial<PostgresStoreOptions> = {}): PostgresStore => {
    const own = openPool(database.url);
    pools.push(own);
    return createPostgresStore({ client: own, ...more });
  };
  const query = async <R extends Record<string, unknown>>(sql: string, params: unknown[] = []): Promise<R[]> =>
    (await pool.query<R>(sql, params)).rows;

  return {
    get server() {
      return server;
    },
    get url() {
      return database.url;
    },
    query,
    openStore,
    /** A fresh database; `enabled`: with the publication. */
    async open({ enabled = true } = {}): Promise<PostgresStore> {
      database = await createDatabase(server.url);
      pool = openPool(database.url, 12);
      pools.push(pool);
      const store = createPostgresStore({ client: pool });
      await store.migrator.migrate();
      if (enabled) await store.wal.enable();
      return store;
    },
    async start(store: RelayOptions["store"], more: Partial<RelayOptions> = {}): Promise<Streaming> {
      const publisher = new RecordingPublisher();
      const events: StreamEventOf[] = [];
      const failures: string[] = [];
      const relay = createRelay({
        store,
        name: "r",
        publisher,
        source: "stream",
        maintenance: false,
        leaseMs: 5000,
        onEvent(event) {
          if (event.type === "stream_started" || event.type === "stream_lost") events.push(event);
          if (event.type === "store_error") failures.push(event.error);
        },
        ...more,
      });
      running.push(relay);
      await relay.start();
      const lost = () => {
        const last = events.findLast(({ type }) => type === "stream_lost");
        return last?.type === "stream_lost" ? last.error : undefined;
      };
      return {
        relay,
        publisher,
        events,
        failures,
        lost,
        streams: () =>
          until(() => events.at(-1)?.type === "stream_started", { what: "the stream", timeoutMs: 20_000 }).then(
            () => undefined,
          ),
      };
    },
    async enqueue(store: PostgresStore, messages: readonly Numbered[]): Promise<void> {
      const client = await pool.connect();
      const outbox = createOutbox({ store });
      try {
        await client.query("begin");
        await outbox.enqueue(
          client,
          messages.map(({ key, ...payload }) => {
            return {
              stream: "orders",
              type: "changed",
              payload: { key, ...payload },
              ...(key === null ? {} : { key }),
            };
          }),
        );
        await client.query("commit");
      } finally {
        client.release();
      }
    },
    async slots(): Promise<{ slot_name: string; active_pid: number | null; confirmed: string }[]> {
      return query("select slot_name, active_pid, confirmed_flush_lsn::text as confirmed from pg_replication_slots");
    },
    /** The server ends the connection that streams. */
    async cut(): Promise<void> {
      await query("select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null");
    },
    /** As a person could by hand. */
    async dropSlot(): Promise<void> {
      for (let tries = 0; tries < 100; tries++) {
        await this.cut();
        const dropped = query("select pg_drop_replication_slot(slot_name) from pg_replication_slots");
        if (await dropped.then(() => true).catch(() => false)) return;
        await sleep(5);
      }
      throw new Error("the slot could not be dropped");
    },
  };
}

export async function dropSlots(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (let tries = 0; tries < 100; tries++) {
      const { rows } = await client.query("select active_pid from pg_replication_slots");
      if (rows.length === 0) return;
      await client.query(
        "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null",
      );
      await client
        .query("select pg_drop_replication_slot(slot_name) from pg_replication_slots where active_pid is null")
        .catch(() => undefined);
      await sleep(20);
    }
  } finally {
    await client.end();
  }
}

/** Writers that count up keys under a lock, until they are stopped: what was committed, per key and in order. */
export function writers(url: string, store: PostgresStore, count = 4) {
  const committed = new Map<string, number>();
  const stopping = new AbortController();
  const outbox = createOutbox({ store });
  const write = async (writer: number): Promise<void> => {
    const client = new pg.Client({ connectionString: url });
    client.on("error", () => undefined);
    await client.connect();
    for (let round = 0; !stopping.signal.aborted; round++) {
      const key = `${writer}-${round % 5}`;
      const n = (committed.get(key) ?? 0) + 1;
      await client.query("begin");
      await outbox.enqueue(client, { stream: "orders", type: "changed", key, payload: { key, n } });
      if (round % 7 === 3) await client.query("rollback");
      else {
        await client.query("commit");
        committed.set(key, n);
      }
      if (round % 11 === 5) await sleep(5);
    }
    await client.end();
  };
  const all = Array.from({ length: count }, (_, i) => write(i));
  // Told when they are stopped.
  for (const one of all) one.catch(() => undefined);
  return {
    committed,
    get total() {
      return [...committed.values()].reduce((sum, n) => sum + n, 0);
    },
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.all(all);
    },
  };
}

/** What went out against what was committed. */
export function verdict(publisher: RecordingPublisher, committed: ReadonlyMap<string, number>) {
  const byKey = Map.groupBy(publisher.sent, ({ key }) => key ?? "");
  const ids = new Set(publisher.sent.map(({ id }) => id));
  let [lost, reordered] = [0, 0];
  for (const [key, n] of committed) {
    const firsts = [...new Set((byKey.get(key) ?? []).map((sent) => sent.n))];
    lost += n - firsts.length;
    reordered += firsts.filter((one, i) => one !== i + 1).length;
  }
  return { lost, doubled: publisher.sent.length - ids.size, reordered };
}
