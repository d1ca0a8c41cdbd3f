import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createRelay } from "../../../src/relay/relay.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

describe.skipIf(!hasPostgres())("what a busy relay does to its server", () => {
  let server: PostgresServer;
  let database: OutboxDatabase;

  beforeAll(async () => {
    const settings = { shared_preload_libraries: "pg_stat_statements", autovacuum: "off" };
    server = await startPostgres({ owned: true, settings });
  });
  afterAll(() => server?.stop());

  beforeEach(async () => {
    database = await outboxDatabase({ serverUrl: server.url });
    return () => database[Symbol.asyncDispose]();
  });

  const drain = (batchSize: number) =>
    createRelay({
      store: database.store,
      name: "orders",
      publisher: new RecordingPublisher(),
      batchSize,
      maintenance: false,
    }).drainOnce();

  it("leaves room in pg_stat_statements for others", async () => {
    await database.query("create extension pg_stat_statements");
    const entries = `select count(*)::int from pg_stat_statements s join pg_database d on d.oid = s.dbid
      where d.datname = current_database() and calls < 1000`;
    for (let round = 0; round < 3; round++) {
      await database.enqueue(series("a", 40));
      await drain(2);
    }
    const before = Number(await database.value(entries));
    for (let round = 0; round < 5; round++) {
      await database.enqueue(series("a", 40));
      await drain(2);
    }
    // The same statements, more often.
    expect(Number(await database.value(entries)) - before).toBeLessThan(5);
  });

  it("does not read what is left of a window for every page, though it has no statistics of the log yet", async () => {
    const count = 40_000;
    await database.query(
      `insert into "txbox"."message" (size, lane, id, stream, type, payload)
       select 20, n % 64, n::text, 'orders', 'changed', json_build_object('key', null, 'n', n) from generate_series(1, $1::int) n`,
      [count],
    );
    await drain(1000);
    // A session reports what it has read when it ends.
    await database.close();
    const after = await outboxDatabase({ url: database.url });
    try {
      const read = await after.value(`select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int
        from pg_stat_user_tables where relname = 'message_0'`);
      expect(read).toBeLessThan(count * 4);
    } finally {
      await after.close();
    }
  });
});
