import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { join } from "../../../src/testing/store/consumer.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

const HOUR_MS = 3_600_000;

describe.skipIf(!hasPostgres())("the bodies of messages that wait", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase({ segmentMs: 1, retentionMs: 0 });
    publisher = new RecordingPublisher();
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      backoff: { baseMs: HOUR_MS, maxMs: HOUR_MS },
      onDead: "block",
      maintenance: false,
    });
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  const fail = (status: "failed" | "rejected") => {
    publisher.rule = ({ n }) => (n === 1 ? { status, error: new Error("not yet") } : undefined);
  };
  const heal = () => {
    publisher.rule = () => undefined;
  };
  /** The time of every failed message has come. */
  const due = () => database.query("update txbox.blocked set next_at = now() where next_at < 'infinity'");
  const positions = async (table: string): Promise<string[]> =>
    (await database.query<{ position: string }>(`select position from txbox.${table} order by ctid`)).map(
      ({ position }) => position,
    );

  it.each([[1], [2]])("number %i of a key cannot be read: nothing passes it, until it can", async (missing) => {
    fail("failed");
    await database.enqueue([...series("bad", 4), ...series("other", 2)]);
    await relay.drainOnce();
    expect(publisher.sent).toEqual([]);
    await database.query(`create table stash as select * from txbox.message where payload->>'key' = 'bad'
      and payload->>'n' = '${missing}'`);
    await database.query("delete from txbox.message where position in (select position from stash)");
    heal();
    await due();
    await relay.start();
    await until(() => publisher.firsts("other").length === 2, { what: "the other key" });
    await database.enqueue(series("bad", 1, 5));
    await until(async () => (await database.store.admin.relays())[0]?.pending === 6 - missing, {
      what: "the last one to be parked",
    });
    expect(publisher.firsts("bad")).toEqual(upTo(missing - 1));
    await database.query("insert into txbox.kept_message select * from stash");
    await until(() => publisher.firsts("bad").length === 5, { what: "the rest of the key" });
    expect(publisher.firsts("bad")).toEqual(upTo(5));
    expect(publisher.sent).toHaveLength(7);
  });

  it("outlive a sweep beside which they are requeued", async () => {
    fail("failed");
    await database.enqueue([...series("a", 1), ...series("b", 1)]);
    await relay.drainOnce();
    await until(
      async () => {
        await database.store.maintenance.run();
        return (await database.value("select count(*)::int from txbox.segment where n = 0")) === 0;
      },
      { what: "the first segment to go" },
    );
    fail("rejected");
    await due();
    await relay.drainOnce();
    expect(await positions("parked")).toEqual([]);
    const [first, second] = await positions("kept_message");

    // The sweep has made its choice and waits for the first row, when the second is wanted again.
    await using holder = await database.connect();
    await holder.query("begin");
    await holder.query(`select 1 from txbox.kept_message where position = ${first} for update`);
    const swept = database.store.maintenance.run();
    await until(
      () =>
        database.value(`select true from pg_stat_activity where datname = current_database()
          and wait_event_type = 'Lock' and query like '%delete from "txbox"."kept_message"%'`),
      { what: "the sweep to wait" },
    );
    expect(await database.store.admin.requeue({ position: BigInt(second ?? 0) })).toBe(1);
    await (await join(database.store, { relay: "orders" })).leave();
    expect(await positions("parked")).toEqual([second]);
    await holder.query("commit");
    await swept;

    heal();
    await relay.drainOnce();
    expect(publisher.sent.map(({ position }) => String(position))).toEqual([second]);
    expect(await database.store.admin.requeue({ all: true })).toBe(1);
    await relay.drainOnce();
    expect(publisher.sent.map(({ position }) => String(position))).toEqual([second, first]);
  });

  it("are the same bytes, however the database prints bytes", async () => {
    const pool = openPool(`${database.url}?options=-c%20bytea_output%3Descape`);
    try {
      expect((await pool.query("show bytea_output")).rows).toEqual([{ bytea_output: "escape" }]);
      const store = createPostgresStore({ client: pool });
      const small = Uint8Array.from({ length: 256 }, (_, i) => i);
      // Read on its own, because it is larger than a page's share for one message.
      const large = Uint8Array.from({ length: 5000 }, (_, i) => (i * 7) % 256);
      const sent: Uint8Array[] = [];
      const bytes = createRelay({
        store,
        name: "bytes",
        publisher: {
          keepsKeyOrder: true,
          publish: async (messages) =>
            messages.map(({ key, body }) => {
              if (key === "dead") return { status: "rejected", error: new Error("never") };
              sent.push(Uint8Array.from(body as Uint8Array));
              return { status: "published" };
            }),
        },
        batchBytes: 100_000,
        maintenance: false,
      });
      const client = await pool.connect();
      await client.query("begin");
      const messages = [small, large].flatMap((payload) =>
        ["sent", "dead"].map((key) => ({ stream: "s", type: "t", payload, key })),
      );
      await database.outbox.enqueue(client, messages);
      await client.query("commit");
      client.release();
      await bytes.drainOnce();
      expect(sent).toEqual([small, large]);
      const seen = [...(await store.admin.dead({})), ...(await store.admin.find({ stream: "s", key: "sent" }))];
      expect(seen.map(({ body }) => Uint8Array.from(body as Uint8Array))).toEqual([small, large, small, large]);
    } finally {
      await pool.end();
    }
  });
});
