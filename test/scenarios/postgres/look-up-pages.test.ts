import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { MessagePage, MessageQuery, MessageSearch, Store } from "../../../src/core/contracts.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { explainingPool } from "../support/explaining-pool.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const SEGMENTS = 3;
const BATCHES = 4;
const MESSAGES = 900;
/** The look-up index keeps so many positions apart from the next ones. */
const BUCKET = 65_536;
const PATIENT = { timeout: 120_000 };
const LOOK_UPS: [MessageSearch & MessageQuery, string][] = [
  [{ key: "dense" }, "key = 'dense'"],
  [{ aggregateId: "fleet" }, "aggregate_id = 'fleet'"],
  [{ correlationId: "import" }, "correlation_id = 'import'"],
  [{ key: "dense", aggregateId: "fleet" }, "key = 'dense' and aggregate_id = 'fleet'"],
];

/**
 * A key that is most of a log of several segments, each of several buckets of the look-up index, some of them empty. An
 * aggregate and a correlation are much of it as well.
 */
describe.skipIf(!hasPostgres())("all pages of a look-up", () => {
  let database: OutboxDatabase;

  beforeAll(async () => {
    database = await outboxDatabase({ segmentMs: 1 });
    for (let segment = 0; segment < SEGMENTS; segment++) {
      for (let batch = 0; batch < BATCHES; batch++) {
        await database.query(
          `insert into txbox.message (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, payload)
           select $1 || '-' || n, 100, 0::smallint, 's', 'type ' || n % 50, case when n % 5 < 4 then 'dense' else 'k' || n end,
             'order', case when n % 3 = 0 then 'fleet' else 'a' || n end, case when n % 2 = 0 then 'import' end, '{}'
           from generate_series(1, $2::int) n`,
          [`${segment}.${batch}`, MESSAGES],
        );
        await database.query(
          `select setval(pg_get_serial_sequence('txbox.message', 'position'), max(position) + $1::int) from txbox.message`,
          [(batch + 1) * BUCKET - 450],
        );
      }
      if (segment < SEGMENTS - 1) await database.store.maintenance.run();
    }
    await database.query("vacuum analyze txbox.message");
  }, 120_000);
  afterAll(() => database?.[Symbol.asyncDispose]());

  const truth = async (where: string): Promise<bigint[]> => {
    const rows = await database.query<{ position: string }>(
      `select position from txbox.message where ${where} order by position desc`,
    );
    return rows.map(({ position }) => BigInt(position));
  };

  /** All pages, of two sizes, and all that `find` gives, against the table. */
  async function compareAll({ admin }: Store, query: MessageSearch & MessageQuery, where: string): Promise<void> {
    const wanted = await truth(where);
    expect(wanted.length).toBeGreaterThan(1000);
    for (const limit of [1000, 97]) {
      const found: (bigint | null)[] = [];
      for (let after: string | null | undefined; after !== null;) {
        const next = after === undefined ? {} : { after };
        const page: MessagePage = await admin.search({ ...query, limit, contents: false, ...next });
        found.push(...page.messages.map(({ position }) => position));
        after = page.next;
      }
      expect(found).toEqual(wanted);
    }
    const oldest = await admin.find({ ...query, limit: 10_000, contents: false });
    expect(oldest.map(({ position }) => position)).toEqual(wanted.toReversed());
  }

  it("spread over the log as this test means it", async () => {
    const buckets = `count(distinct position / ${BUCKET})::int`;
    expect(await database.value(`select count(distinct tableoid)::int from txbox.message`)).toBe(SEGMENTS);
    expect(await database.value(`select ${buckets} from txbox.message where key = 'dense'`)).toBeGreaterThan(10);
  });

  it.each(LOOK_UPS)("%o: none is missed, none is there twice, and all are in order", PATIENT, async (query, where) => {
    await compareAll(database.store, query, where);
  });

  it("no bucket is read behind the one that has enough, and their order does not rest on the join", async () => {
    const { client, statements } = explainingPool(database.pool);
    const { admin } = createPostgresStore({ client });
    await admin.search({ aggregateId: "fleet", limit: 1000 });
    await admin.find({ aggregateId: "fleet", limit: 1000 });
    const plans = statements.filter(({ plan }) => plan.includes("Bitmap Index Scan")).map(({ plan }) => plan);
    expect(plans.length).toBeGreaterThan(2);
    for (const plan of plans) expect(plan).toMatch(/Incremental Sort[^]*?Presorted Key: n\.n/);
  });

  it("every search has a time after which the server gives it up", async () => {
    const { client, statements } = explainingPool(database.pool);
    const { admin } = createPostgresStore({ client });
    await admin.search({ key: "dense", limit: 1 });
    await admin.find({ key: "dense", limit: 1 });
    await admin.find({ id: "0.1-1" });
    const settings = statements.filter(({ text }) => text.includes("enable_seqscan"));
    expect(settings).toHaveLength(3);
    for (const { text } of settings) expect(text).toContain("'statement_timeout', '30000', true");
  });

  it("the same, narrowed by what no index knows", { timeout: 120_000 }, async () => {
    const found: (bigint | null)[] = [];
    for (let after: string | null | undefined; after !== null;) {
      const page: MessagePage = await database.store.admin.search({
        key: "dense",
        type: "type 7",
        limit: 10,
        ...(after === undefined ? {} : { after }),
      });
      found.push(...page.messages.map(({ position }) => position));
      after = page.next;
    }
    expect(found).toEqual(await truth("key = 'dense' and type = 'type 7'"));
  });

  describe("while the index of a segment is not built yet", () => {
    beforeAll(async () => {
      const [index] = await database.query<{ name: string; def: string }>(
        `select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as def from pg_index
         where indrelid = 'txbox.message'::regclass and pg_get_indexdef(indexrelid) like '%>> 16%'`,
      );
      const using = index!.def.slice(index!.def.indexOf(" USING "));
      await database.query(`drop index ${index!.name}`);
      await database.query(`create index declared on only txbox.message${using}`);
      await database.query(`create index built on txbox.message_1${using}`);
      await database.query("alter index txbox.declared attach partition txbox.built");
      await database.query("vacuum analyze txbox.message");
    }, 60_000);

    it.each(LOOK_UPS)("%o: the same, and the segment is walked through once", PATIENT, async (query, where) => {
      const { client, statements } = explainingPool(database.pool);
      await compareAll(createPostgresStore({ client }), query, where);
      const byBucket = statements.filter(({ text }) => text.includes("generate_series"));
      expect(byBucket.length).toBeGreaterThan(0);
      for (const { plan } of byBucket) expect(plan).toMatch(/Bitmap Index Scan on built/);
    });
  });
});
