import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { audit, createRelay } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { runCli } from "../../support/run-cli.ts";
import { explainingPool } from "../support/explaining-pool.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const ROWS = isLong ? 10_000_000 : 20_000;
const DAYS = 10;

/** A UUIDv7 of a time, in SQL. */
const uuidAt = (at: string): string =>
  `regexp_replace(lpad(to_hex((extract(epoch from ${at}) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15),
     '(.{8})(.{4})(.{4})(.{4})(.{12})', '\\1-\\2-\\3-\\4-\\5')`;

describe.skipIf(!hasPostgres())(`an audit over a log of ${ROWS} messages of ${DAYS} days`, () => {
  let database: OutboxDatabase;

  beforeAll(async () => {
    database = await outboxDatabase({ serverUrl: sharedPostgresUrl() });
    const at = `now() - interval '${DAYS} days' + n * (interval '${DAYS} days' / ${ROWS})`;
    // Receipts of all but each 1000th; half of the ids hold a time, the others do not.
    const id = `case when n % 2 = 0 then ${uuidAt(at)} else 'chosen-' || n end`;
    await database.pool.query(
      `insert into txbox.message (created_at, size, lane, id, stream, type, key, payload)
       select ${at}, 100, n % 64, ${id}, 's', 't', 'k' || n % 100, '{}' from generate_series(1, ${ROWS}) n order by n`,
    );
    // The days of the ids, and no others: the database makes them as an inbox would.
    const { ledger } = database.store;
    const { rows } = await database.pool.query<{ id: string }>(
      `select min(id) as id from txbox.message where id not like 'chosen%' group by created_at::date`,
    );
    for (const row of rows)
      await ledger.fail({ consumer: "c", messageId: row.id, type: "t", correlationId: null }, "only its day is wanted");
    await database.pool.query("delete from txbox.receipt");
    await database.pool.query(
      `insert into txbox.receipt (bucket, consumer, message_id, type, status, processed_at)
       select case when id like 'chosen%' then date '0001-01-01' else (created_at at time zone 'utc')::date end, 'c', id, type, 'processed', now()
       from txbox.message where position % 1000 <> 0`,
    );
    await database.pool.query("vacuum analyze txbox.message");
    const relay = createRelay({
      store: database.store,
      name: "r",
      publisher: createMemoryPublisher(),
      start: "earliest",
    });
    await relay.drainOnce({ deadlineMs: 2_400_000 });
  }, 3_600_000);
  afterAll(() => database?.[Symbol.asyncDispose]());

  test("a replay from a time on finds its place by the index over time", async () => {
    const { client, statements } = explainingPool(database.pool);
    const since = new Date(Date.now() - 3_600_000 * 6);
    let count = 0;
    for await (const message of createPostgresStore({ client }).readLog({ since, deliveredBy: "r" }))
      if (message.createdAt >= since) count++;
    expect(count).toBeGreaterThan((ROWS / DAYS / 24) * 6 * 0.95);
    expect(count).toBeLessThan((ROWS / DAYS / 24) * 6 * 1.05);
    const [byTime] = statements.filter(({ text }) => text.includes("min(position) - 1"));
    expect(byTime?.plan).toMatch(/Bitmap Index Scan on message_\d_created_at_idx/);
  });

  test("reads only the hour that was asked for, by indexes", async () => {
    const { client, statements } = explainingPool(database.pool);
    const store = createPostgresStore({ client });
    const since = new Date(Date.now() - 3_600_000 * 6);
    const report = await audit({ from: store, to: store, consumer: "c", since, graceMs: 0 });
    const expected = (ROWS / DAYS / 24) * 6;
    expect(report.checked).toBeGreaterThan(expected * 0.95);
    expect(report.checked).toBeLessThan(expected * 1.05);
    expect(report).toMatchObject({ failed: 0, late: 0, unjudged: 0, arrived: report.checked - report.missing });
    expect(report.missing).toBeGreaterThanOrEqual(Math.floor(expected / 1000) - 1);
    const scans = statements.filter(({ plan }) => /Seq Scan on (?:message_\d|receipt_(?!floor))/.test(plan));
    expect(scans.map(({ text, plan }) => `${text}\n${plan}`)).toEqual([]);
    const byTime = statements.filter(({ text }) => text.includes("min(position) - 1"));
    expect(byTime).toHaveLength(1);
    expect(byTime[0]?.plan).toMatch(/Bitmap Index Scan on message_\d_created_at_idx/);
    const pages = statements.filter(({ text }) => /position > \d+ and position <= /.test(text));
    expect(pages.length).toBeGreaterThan(0);
    for (const { plan } of pages) expect(plan).toMatch(/Index Scan using message_\d_pkey/);
    const receipts = statements.filter(({ text }) => text.includes("consumer = any"));
    for (const { plan } of receipts) expect(plan).toMatch(/Index (?:Only )?Scan (?:using|on) receipt_\w+pkey/);
  });

  test("over all of it has room in 40 MiB, and finds exactly what is missing", { timeout: 1_800_000 }, async () => {
    const begun = performance.now();
    const args = ["audit", "--database-url", database.url, "--consumer", "c", "--grace", "0s", "--json"];
    const { json, stderr } = await runCli([...args, "--since", `${DAYS + 1}d`, "--limit", "100000"], {
      env: { NODE_OPTIONS: "--max-old-space-size=40" },
      timeoutMs: 500_000,
    });
    if (isLong) process.stdout.write(`${ROWS} in ${Math.round(performance.now() - begun)} ms\n`);
    const report = json as { findings: { position: string }[] };
    expect(report, stderr).toMatchObject({
      checked: ROWS,
      missing: ROWS / 1000,
      arrived: ROWS - ROWS / 1000,
      unjudged: 0,
    });
    // A line every five seconds, so none where it was quick.
    const tookLong = performance.now() - begun > 12_000;
    expect(tookLong && !/messages looked at, up to \d{4}-/.test(stderr)).toBe(false);
    expect(report.findings.every(({ position }) => BigInt(position) % 1000n === 0n)).toBe(true);
  });
});
