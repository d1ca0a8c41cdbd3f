import type pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/index.ts";
import { join, PUBLISHED } from "../../../src/testing/store/consumer.ts";
import { type PostgresServer, serverOrSkip, startPostgres } from "../../harness/index.ts";
import { type Explained, explainingPool } from "../support/explaining-pool.ts";
import { openPool, outboxDatabase, series, type OutboxDatabase } from "../support/outbox-database.ts";

/** The server compiles what it takes for expensive: here that is almost everything. */
const EAGER_TO_COMPILE = "-c jit=on -c jit_above_cost=100";
const RETENTION = { segmentMs: 1, retentionMs: 3_600_000 };

describe.each(["path", "embedded"] as const)("a log of many segments, on PostgreSQL from %s", (binaries) => {
  let slot: Awaited<ReturnType<typeof serverOrSkip<PostgresServer>>>;
  let database: OutboxDatabase;
  let eager: pg.Pool;
  let statements: Explained[];
  let store: PostgresStore;
  let segments = 1;

  beforeAll(async () => {
    slot = await serverOrSkip(`PostgreSQL from ${binaries}`, () =>
      startPostgres({ binaries, owned: true, settings: { jit: "off", autovacuum: "off" } }),
    );
    if (slot.skipped) return;
    database = await outboxDatabase({ serverUrl: slot.server.url, ...RETENTION });
    eager = openPool(`${database.url}?options=${encodeURIComponent(EAGER_TO_COMPILE)}`);
    const explaining = explainingPool(eager);
    ({ statements } = explaining);
    store = createPostgresStore({ client: explaining.client, ...RETENTION });
  });
  afterAll(async () => {
    await eager?.end();
    await database?.[Symbol.asyncDispose]();
    await slot.stop();
  });

  /** Every segment but the last is published. */
  async function grow(to: number): Promise<void> {
    const session = await join(database.store, { relay: "r", batch: { messages: 1000, bytes: 1_000_000 } });
    for (; segments < to; segments++) {
      await database.enqueue(series(`k${segments}`, 40));
      for (let claim = await session.claim("new"); claim !== undefined; claim = await session.claim("new")) {
        await session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        );
      }
      await database.store.maintenance.run();
    }
    await session.leave();
    await database.store.maintenance.run();
    await database.enqueue(series("last", 5));
    expect(await database.value("select count(*)::int from txbox.segment where closed_at is not null")).toBe(to - 1);
  }

  async function watched(run: (store: PostgresStore) => Promise<unknown>): Promise<Explained[]> {
    statements.length = 0;
    await run(store);
    return [...statements];
  }

  const compiled = (those: readonly Explained[]) => those.filter(({ plan }) => /^JIT:/m.test(plan));
  const segmentsIn = (those: readonly Explained[]) =>
    new Set(those.flatMap(({ plan }) => plan.match(/\bmessage_\d+\b/g) ?? [])).size;

  test.each([30, 100])("figures and look-ups of %i are neither compiled nor scanned", async (count) => {
    if (slot.skipped) return;
    await grow(count);
    const figures = await watched(({ admin }) => admin.relays());
    expect((await database.store.admin.relays())[0]).toMatchObject({ name: "r", pending: 5 });
    expect(compiled(figures)).toEqual([]);
    // The present one, the next one and the one after that: however many are behind.
    expect(segmentsIn(figures)).toBeLessThanOrEqual(3);
    expect(figures.length).toBeLessThanOrEqual(14);
    const ofStore = await watched(({ admin }) => admin.figures());
    expect(compiled(ofStore)).toEqual([]);
    // Those of the relays, and the oldest.
    expect(segmentsIn(ofStore)).toBeLessThanOrEqual(5);
    expect(ofStore.length).toBeLessThanOrEqual(24);

    for (const query of [{ id: "none" }, { key: "k7" }, { correlationId: "none" }]) {
      const found = await watched(({ admin }) => admin.find(query));
      expect(compiled(found)).toEqual([]);
      expect(found.filter(({ plan }) => /Seq Scan on message_\d/.test(plan))).toEqual([]);
    }
  });

  test.each([
    {},
    { type: "changed" },
    { status: "published" as const },
    { status: "pending" as const },
    { until: new Date(Date.now() - 1000) },
    { status: "dead" as const },
    { status: "retrying" as const },
    { status: "scheduled" as const },
  ])("a page of %o plans no segment that it does not read", async (query) => {
    if (slot.skipped) return;
    const page = await watched(({ admin }) => admin.search({ limit: 3, ...query }));
    expect(page.length).toBeGreaterThan(4);
    expect(compiled(page)).toEqual([]);
    expect(page.filter(({ plan }) => /Seq Scan on message_\d/.test(plan))).toEqual([]);
    const scanned = ({ plan }: Explained) => new Set(plan.match(/(?<= on )message_\d+\b/g)).size;
    const many = page.filter((statement) => scanned(statement) > 1);
    expect(many.map(({ text, plan }) => `${text}\n${plan}`)).toEqual([]);
  });

  test("maintenance finds what to delete by indexes, and analyses what was never analysed", async () => {
    if (slot.skipped) return;
    const maintaining = await watched(({ maintenance }) => maintenance.run());
    const scans = /Seq Scan on (?:batch|delivery|dead|enqueued_id|kept_message|receipt_foreign|message_\d+)\b/;
    const deletes = maintaining.filter(({ text }) => text.includes("delete from"));
    expect(deletes.length).toBeGreaterThan(5);
    expect(deletes.filter(({ plan }) => scans.test(plan)).map(({ plan }) => plan)).toEqual([]);
    expect(compiled(deletes)).toEqual([]);
    const unknown = await database.query(
      `select relname from pg_class where relnamespace = 'txbox'::regnamespace and reltuples < 0
         and relname in ('relay', 'cursor', 'lane', 'member', 'segment', 'batch', 'dead', 'parked', 'blocked', 'message_0', 'message_1')`,
    );
    expect(unknown).toEqual([]);
  });
});
