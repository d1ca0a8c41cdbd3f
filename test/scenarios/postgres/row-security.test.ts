import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { QueueSession } from "../../../src/core/contracts.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { join, nextClaim } from "../../../src/testing/store/consumer.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

describe.skipIf(!hasPostgres())("row-level security", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  const role = `relay_${process.pid}`;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
    await database.query(`create role ${role} login`);
    await database.query(database.store.grants({ relay: role }));
  });
  afterEach(async () => {
    await database.query(`drop owned by ${role}`);
    await database.query(`drop role ${role}`);
    await database[Symbol.asyncDispose]();
  });

  it.each(["message", "kept_message", "scheduled", "blocked", "parked", "dead", "cursor", "lane"])(
    "that may hide rows of %s from the relay is refused by name, at the start and while it runs",
    async (table) => {
      const url = new URL(database.url);
      url.username = role;
      const pool = openPool(url.href);
      const errors: string[] = [];
      const relay = createRelay({
        store: createPostgresStore({ client: pool }),
        name: "orders",
        publisher,
        leaseMs: 900,
        maintenance: false,
        onEvent: (event) => event.type === "store_error" && errors.push(event.error),
      });
      await database.query(`alter table txbox.${table} enable row level security`);
      await expect(relay.start()).rejects.toMatchObject({
        code: "row_security",
        message: expect.stringContaining(table),
      });
      await database.query(`alter table txbox.${table} disable row level security`);
      await relay.start();
      await database.enqueue(series("a", 3));
      await until(() => publisher.firsts("a").length === 3, { what: "what is not hidden" });
      await database.query(`alter table txbox.${table} enable row level security`);
      await until(() => errors.some((error) => error.includes(table)), { what: "the refusal" });
      await database.enqueue(series("a", 3, 4));
      await database.query(`alter table txbox.${table} disable row level security`);
      await until(() => publisher.firsts("a").length === 6, { what: "what was hidden" });
      expect(publisher.firsts("a")).toEqual(upTo(6));
      await relay.stop();
      await pool.end();
    },
    30_000,
  );

  it("that begins while a process has several cursors does not keep it busy, and lets it go on afterwards", async () => {
    const url = new URL(database.url);
    url.username = role;
    const pool = openPool(url.href);
    const store = createPostgresStore({ client: pool });
    const [one, two] = [await join(store, { relay: "r" }), await join(store, { relay: "r" })];
    const work = async (session: QueueSession): Promise<number> => {
      const { lanes } = await session.tend();
      const claim = await nextClaim(session);
      if (claim !== undefined)
        await session.settle(
          claim,
          claim.messages.map(() => ({ status: "published" as const })),
        );
      return lanes;
    };
    await until(async () => (await work(one)) === 32 && (await work(two)) === 32, { what: "shares" });
    await database.enqueue(Array.from({ length: 30 }, (_, n) => ({ key: `k${n}`, n })));
    for (let turn = 0; turn < 5; turn++) await work(one);
    await two.leave();
    await one.tend();
    await database.query("alter table txbox.message enable row level security");
    const epochs = async () => {
      const [row] = await database.query("select sum(epoch)::int as sum from txbox.cursor where relay = 'r'");
      return row!["sum"] as number;
    };
    const before = await epochs();
    const startedAt = performance.now();
    for (let turn = 0; turn < 20; turn++) await nextClaim(one, ["new"]).catch(() => undefined);
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    expect((await epochs()) - before).toBeLessThan(10);
    await expect(one.tend()).rejects.toMatchObject({ code: "row_security" });
    await database.query("alter table txbox.message disable row level security");
    await until(async () => (await work(one).catch(() => 0)) === 64, { what: "all lanes" });
    await until(
      async () => {
        await work(one);
        const [row] = await database.query(
          "select count(*)::int as n from txbox.message_status where status = 'published'",
        );
        return row!["n"] === 30;
      },
      { what: "what was hidden" },
    );
    await one.leave();
    await pool.end();
  }, 60_000);

  it("that may hide rows of the log from an archive, a replay or an audit is refused by name", async () => {
    await database.enqueue(series("a", 3));
    await createRelay({ store: database.store, name: "orders", publisher }).drainOnce();
    const url = new URL(database.url);
    url.username = role;
    const pool = openPool(url.href);
    const store = createPostgresStore({ client: pool });
    const reads: Record<string, () => Promise<unknown>> = {
      readLog: async () => {
        for await (const message of store.readLog({ since: new Date(0) })) return message;
        return undefined;
      },
      sent: () => store.admin.sent({ relay: "orders", since: new Date(0), until: new Date() }),
    };
    for (const read of Object.values(reads)) expect(await read()).toBeDefined();
    await database.query("alter table txbox.message enable row level security");
    for (const [name, read] of Object.entries(reads))
      await expect(read(), name).rejects.toMatchObject({
        code: "row_security",
        message: expect.stringContaining("message"),
      });
    await pool.end();
  });
});
