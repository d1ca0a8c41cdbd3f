import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import {
  type ConnectRecord,
  type DebeziumEngine,
  debeziumJars,
  type PostgresSource,
  serverOrSkip,
  startDebezium,
  startPostgres,
  until,
} from "../../harness/index.ts";
import { isLong } from "../../support/is-long.ts";
import { inTransaction } from "../../support/in-transaction.ts";
import {
  documentedConnector,
  documentedHeaders,
  documentedRecovery,
  documentedSql,
} from "../../support/docs/debezium-page.ts";
import { firstsBy, idOf, messagesOf, opened } from "../support/debezium-records.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RandomTransactions } from "../support/random-transactions.ts";
import { firstsOf, RecordingPublisher, upTo } from "../support/recording-publisher.ts";

/** The server of the packages; and the one that the system has, which is older. */
const BINARIES: readonly (PostgresSource | undefined)[] = isLong ? [undefined, "path"] : [undefined];
const startServer = async (binaries: PostgresSource | undefined) => {
  await debeziumJars();
  return startPostgres({ owned: true, ...(binaries === undefined ? {} : { binaries }) });
};
const slots = await Promise.all(BINARIES.map((binaries) => serverOrSkip("Debezium", () => startServer(binaries))));
afterAll(() => Promise.all(slots.map((slot) => slot.stop())));

/** Every maintenance run rotates, and drops what is settled. */
const EAGER = { segmentMs: 1, retentionMs: 0 };
/** Starting a JVM takes a second, and on a busy machine twenty. */
const WAIT_MS = 60_000;
const DROP_SLOT = "select pg_drop_replication_slot('debezium')";

const servers = slots.map((slot, i) => ({
  slot,
  origin: BINARIES[i] === "path" ? "of the system" : "of the packages",
}));

describe.skipIf(slots.some(({ skipped }) => skipped)).each(servers)(
  "Debezium with the configuration of docs/debezium.md, PostgreSQL $origin",
  ({ slot }) => {
    let database: OutboxDatabase;
    const relays: Relay[] = [];
    const engines: DebeziumEngine[] = [];
    const flows: AbortController[] = [];

    beforeEach(async () => {
      database = await outboxDatabase({ serverUrl: slot.server.url, ...EAGER });
      await database.query(documentedSql("create role"));
    });
    afterEach(async () => {
      for (const flow of flows.splice(0)) flow.abort();
      await Promise.all([
        ...relays.splice(0).map((relay) => relay.stop()),
        ...engines.splice(0).map((each) => each.stop()),
      ]);
      await untilFree();
      await database.query(documentedSql("drop publication"));
      await database.query("drop owned by debezium; drop role debezium");
      await database[Symbol.asyncDispose]();
    });

    const createSlot = () => database.query(documentedSql("pg_create_logical_replication_slot"));
    const isActive = () => database.value("select active from pg_replication_slots where slot_name = 'debezium'");
    const untilFree = () =>
      until(async () => (await isActive()) !== true, { what: "the slot to be free", timeoutMs: WAIT_MS });

    /** With the documented configuration, these lines changed and those left out. */
    async function start(changes: Record<string, string> = {}, isLeftOut = /^$/): Promise<DebeziumEngine> {
      const url = new URL(database.url);
      url.username = "debezium";
      const kept = Object.entries(documentedConnector(url.href)).filter(([name]) => !isLeftOut.test(name));
      const engine = await startDebezium({ config: { ...Object.fromEntries(kept), ...changes } });
      engines.push(engine);
      return engine;
    }

    const wait = (engine: DebeziumEngine, what: string, check: () => boolean | Promise<boolean>) =>
      until(
        () => {
          if (!engine.running) throw new Error(`Debezium ended\n${engine.log().slice(-4000)}`);
          return check();
        },
        { what, timeoutMs: WAIT_MS },
      );
    const currentLsn = async () => String(await database.value(documentedSql("select pg_current_wal_lsn()")));
    /** It has noted that everything up to there is sent. */
    const untilDrained = async (engine: DebeziumEngine, lsn?: string) => {
      const drained = documentedSql("as drained", lsn ?? (await currentLsn()));
      await wait(engine, "the slot to move on", async () => (await database.value(drained)) === true);
    };
    const startRelay = async (name: string, publisher: RecordingPublisher | ReturnType<typeof publishEach>) => {
      const relay = createRelay({ store: database.store, name, publisher, maintenance: false });
      relays.push(relay);
      await relay.start();
    };
    const startKeeper = () =>
      startRelay(
        "log-keeper",
        publishEach(async () => undefined),
      );
    const segments = async () =>
      (await database.query<{ n: string }>("select n from txbox.segment order by n")).map(({ n }) => Number(n));

    it("emits what was committed and nothing else, in the order of commits, also when it is killed", async () => {
      await createSlot();
      const engine = await start();
      await wait(engine, "Debezium to stream", async () => (await isActive()) === true);
      const writer = new RandomTransactions(database, 7);
      await writer.commit(500);
      // What others write into the WAL, and what a stored inbox keeps in the log.
      await database.query(
        "select pg_logical_emit_message(false, 'txbox', '1:2'), pg_logical_emit_message(true, 'other', 'x')",
      );
      await database.query(`insert into txbox.message (id, size, lane, stream, type, payload)
      values ('stored', 1, 0, 'inbox.orders', 'order_created', '1')`);
      await wait(engine, "some of the messages", () => messagesOf(engine).length >= 100);
      await engine.kill();
      await writer.commit(500);
      await untilFree();
      engine.start();
      await wait(engine, "all messages", () => firstsBy(engine).length >= writer.committed.length);

      expect(firstsBy(engine)).toEqual(writer.committed);
      // A repeat is the same to the last byte.
      const seen = new Map<string, ConnectRecord>();
      for (const record of messagesOf(engine)) {
        const id = idOf(record);
        expect(record).toEqual(seen.get(id) ?? record);
        seen.set(id, record);
      }
      expect(await places([...seen.values()])).toEqual([]);
      expect(writer.rolledBack).toBeGreaterThan(50);
      expect(writer.prepared).toBeGreaterThan(3);
      expect(new Set(writer.committed.map(({ stream }) => stream)).size).toBe(4);

      // An idle outbox beside busy tables: the slot moves on, as it does when everything was sent.
      await database.query("create table busy as select n, repeat('x', 100) as text from generate_series(1, 10000) n");
      await untilDrained(engine);
      expect(engine.records.length).toBeGreaterThan(messagesOf(engine).length);
    });

    /** Position and time are those of the rows: what differs. */
    async function places(records: readonly ConnectRecord[]): Promise<string[]> {
      const rows = await database.query<{ id: string; position: string; created_at: Date }>(
        "select id, position, created_at from txbox.message",
      );
      const known = new Map(rows.map(({ id, position, created_at: at }) => [id, `${position} ${at.toISOString()}`]));
      return records
        .map((record) => opened(record))
        .filter(({ id, position, createdAt }) => known.get(id!) !== `${position} ${createdAt?.toISOString()}`)
        .map(({ id }) => String(id));
    }

    it("reads a log whose segments were rotated and dropped meanwhile", async () => {
      await startKeeper();
      await createSlot();
      const writer = new RandomTransactions(database, 8);
      const rotate = async (): Promise<void> => {
        for (let i = 0; i < 4; i++) {
          await writer.commit(20);
          await database.store.maintenance.run();
        }
      };
      await rotate();
      // They are gone before Debezium has read anything of them.
      await until(async () => (await database.store.maintenance.run()) && (await segments())[0]! >= 3, {
        what: "the first segments to go",
        timeoutMs: WAIT_MS,
      });
      const engine = await start();
      await wait(engine, "what was in dropped segments", () => firstsBy(engine).length >= writer.committed.length);
      await rotate();
      await wait(engine, "what came while segments went", () => firstsBy(engine).length >= writer.committed.length);
      expect(firstsBy(engine)).toEqual(writer.committed);
    });

    it.runIf(isLong)(
      "refuses to go on without its slot, and brings back what is kept by the steps of the page",
      async () => {
        await createSlot();
        const engine = await start();
        const writer = new RandomTransactions(database, 10);
        await writer.commit(50);
        await wait(engine, "all messages", () => firstsBy(engine).length >= writer.committed.length);
        // One that has not noted yet how far it is takes a new slot for its first one.
        await untilDrained(engine);
        await engine.kill();
        await untilFree();
        await database.query(DROP_SLOT);
        const lost = new RandomTransactions(database, 9);
        await lost.commit(20);
        const refuses = async (): Promise<void> => {
          engine.start();
          await until(() => !engine.running, { what: "Debezium to refuse", timeoutMs: WAIT_MS });
        };
        await refuses();
        await createSlot();
        await lost.commit(20);
        await refuses();
        expect(engine.log().match(/the engine ended: .*no longer available on the server/g)).toHaveLength(2);
        expect(firstsBy(engine)).toEqual(writer.committed);

        await database.query(DROP_SLOT);
        const kept = (await database.query("select id from txbox.message order by position")).map(({ id }) => id);
        const again = await start(documentedRecovery());
        await wait(again, "Debezium to stream", async () => (await isActive()) === true);
        const before = lost.committed.length;
        await lost.commit(20);
        await wait(
          again,
          "everything that is kept",
          () => firstsBy(again).length >= kept.length + lost.committed.length - before,
        );
        const known = new Map([...writer.committed, ...lost.committed].map((message) => [message.id, message]));
        expect(firstsBy(again)).toEqual([...kept.map((id) => known.get(String(id))), ...lost.committed.slice(before)]);
        expect(kept.length).toBeGreaterThanOrEqual(before);
      },
    );

    it("takes over from a relay while messages flow, by the steps of the page: each key stays in order", async () => {
      const publisher = new RecordingPublisher();
      await startRelay("to-kafka", publisher);
      let written = 0;
      const flow = new AbortController();
      flows.push(flow);
      const writing = (async () => {
        for (; !flow.signal.aborted; written++) {
          await database.enqueue(["a", "b", "c"].flatMap((key) => series(key, 1, written + 1)));
        }
      })();
      // Its commit stands in the WAL before the slot begins, or after it.
      await using late = await database.connect();
      await late.query("begin");
      await late.enqueue(series("late", 3));

      await startKeeper();
      const creating = createSlot();
      await late.query("commit");
      await creating;
      const id = String(Object.values((await database.query(documentedSql("select pg_current_xact_id()")))[0]!)[0]);
      const passed = documentedSql("as passed", id);
      await until(async () => (await database.value(passed)) === true, {
        what: "the relay to pass the slot",
        timeoutMs: WAIT_MS,
      });
      await database.store.admin.pause("to-kafka");
      expect(await database.store.admin.blocked({ relay: "to-kafka" })).toEqual([]);

      const engine = await start();
      await wait(engine, "Debezium to stream", async () => (await isActive()) === true);
      const before = written;
      await until(() => written > before + 20, { what: "more messages", timeoutMs: WAIT_MS });
      flow.abort();
      await writing;
      const numbered = () =>
        messagesOf(engine).map((record) => JSON.parse(String(record.value)) as { key: string; n: number });
      const byBoth = (key: string) =>
        firstsOf([...publisher.sent, ...numbered().map((each) => ({ ...each, poison: false }))], key);
      for (const key of ["a", "b", "c"]) {
        await wait(engine, `all of ${key}`, () => new Set(byBoth(key)).size >= written);
        expect(byBoth(key)).toEqual(upTo(written));
        // It begins before the relay has ended, and leaves nothing out from there on.
        const own = firstsOf(numbered(), key);
        expect(own).toEqual(upTo(own.length, own[0]));
        expect(own[0]).toBeLessThanOrEqual(publisher.firsts(key).length + 1);
      }
      expect(byBoth("late")).toEqual(upTo(3));
    });

    it("gives over an outbox table of its own to txbox, by the steps of the page: each key stays in order", async () => {
      await database.query(`create table outbox (id uuid primary key, aggregatetype text not null, aggregateid text not null,
      type text not null, payload jsonb); grant select on outbox to debezium;
      create publication old for table outbox with (publish = 'insert')`);
      await createSlot();
      const engine = await start(
        {
          "publication.name": "old",
          "table.include.list": "public.outbox",
          "value.converter": "org.apache.kafka.connect.storage.StringConverter",
          transforms: "outbox",
          "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
          "transforms.outbox.table.fields.additional.placement": documentedHeaders(),
        },
        /^(?:transforms|predicates|value.converter|column)/,
      );
      for (let n = 1; n <= 30; n++) {
        await database.query(`with message as (insert into outbox values (gen_random_uuid(), 'order', 'o-1', 'changed', '{"n": ${n}}')
        returning id) select id from message; delete from outbox`);
      }
      const lsn = await currentLsn();
      for (let n = 31; n <= 60; n++) {
        await inTransaction(database.pool, (tx) =>
          database.outbox.enqueue(tx, {
            stream: "order",
            type: "changed",
            aggregateType: "order",
            aggregateId: "o-1",
            payload: { key: "o-1", n },
          }),
        );
      }
      await untilDrained(engine, lsn);
      const old = messagesOf(engine);
      const publisher = new RecordingPublisher();
      await startRelay("to-kafka", publisher);
      await until(() => publisher.sent.length >= 30, { what: "the messages in the log", timeoutMs: WAIT_MS });

      expect([...old.map((record) => numberOf(record)), ...publisher.firsts("o-1")]).toEqual(upTo(60));
      expect(old.map((record) => record.topic)).toEqual(upTo(30).map(() => "outbox.event.order"));
      for (const message of old.map((record) => opened(record))) {
        expect(message).toMatchObject({ type: "changed", key: "o-1", aggregateType: "order", aggregateId: "o-1" });
      }
      expect(new Set(old.map((record) => idOf(record))).size).toBe(30);
      await database.query("drop publication old");
    });
  },
);

const numberOf = ({ value }: ConnectRecord) => (JSON.parse(String(value)) as { n: number }).n;
