import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";

const MESSAGES = 20_000;
/** The index of keys, aggregates and correlations. */
const LOOK_UP = /Bitmap Index Scan on message_0_array_idx/;

describe.skipIf(!hasPostgres())("looking up messages in a long log", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await testDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 2 });
    const store = createPostgresStore({ client: pool });
    await store.migrator.migrate();
    const client = await pool.connect();
    const outbox = createOutbox({ store });
    await client.query("begin");
    const messages = Array.from({ length: MESSAGES }, (_, i) => ({
      stream: "s",
      type: "t",
      id: `id-${i}`,
      // Every other message has an aggregate that is not its key.
      key: `a-${i % 2000}`,
      aggregateType: "order",
      aggregateId: i % 2 === 0 ? `a-${i % 2000}` : `b-${i % 2000}`,
      headers: { correlationId: `c-${i % 4000}` },
      payload: i,
    }));
    for (let from = 0; from < MESSAGES; from += 5000) await outbox.enqueue(client, messages.slice(from, from + 5000));
    await client.query("commit");
    client.release();
    await pool.query("vacuum analyze txbox.message");
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });

  it.each([
    [{ id: "id-7" }, 1],
    [{ key: "a-7" }, 10],
    [{ aggregateId: "a-8", aggregateType: "order" }, 10],
    [{ aggregateId: "b-7" }, 10],
    [{ correlationId: "c-7" }, 5],
    // Without a correlation of its own a message begins a chain under its id.
    [{ correlationId: "id-13" }, 0],
  ])("finds %o by an index", async (query, count) => {
    const plans: string[] = [];
    const watched = {
      totalCount: pool.totalCount,
      query: pool.query.bind(pool),
      async connect() {
        const client = await pool.connect();
        return watchedClient(client, (plan) => plans.push(plan));
      },
    };
    const { admin } = createPostgresStore({ client: watched as never });
    expect(await admin.find(query)).toHaveLength(count);
    expect(plans.length).toBeGreaterThan(0);
    for (const plan of plans) expect(plan).not.toMatch(/Seq Scan on message_0/);
    const byId = "id" in query;
    const [found] = plans.filter((plan) => (byId ? /Index Scan using message_0_id_idx/ : LOOK_UP).test(plan));
    expect(found, plans.join("\n\n")).toBeDefined();
    expect((await admin.search(query)).messages).toHaveLength(count);
    for (const plan of plans) expect(plan).not.toMatch(/Seq Scan on message_0/);
  });

  it.each([
    ["id-7", 1],
    ["a-7", 10],
    ["a-8", 10],
    ["b-7", 10],
    ["c-7", 5],
    ["nothing", 0],
  ])("people find what is about %s by an index", async (text, count) => {
    const found = await pool.query("select position, status from txbox.about($1)", [text]);
    expect(found.rows).toHaveLength(count);
    const plan = await planOf("select * from txbox.about($1)", [text]);
    expect(plan).toMatch(/Index/);
    expect(plan).not.toMatch(/Seq Scan on message_0/);
  });

  async function planOf(text: string, values: unknown[]): Promise<string> {
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(`explain ${text}`, values);
    return rows.map((row) => row["QUERY PLAN"]).join("\n");
  }
});

/** Explains every look at the log before it is taken, under the settings of its transaction. */
function watchedClient(client: pg.PoolClient, onPlan: (plan: string) => void): object {
  const explained = async (config: string | { text: string; values: unknown[] }): Promise<unknown> => {
    if (typeof config !== "string" && /"message(?:_status)?"/.test(config.text)) {
      const { rows } = await client.query<{ "QUERY PLAN": string }>(`explain ${config.text}`, config.values);
      onPlan(rows.map((row) => row["QUERY PLAN"]).join("\n"));
    }
    return client.query(config as string);
  };
  return new Proxy(client, {
    get(target, name) {
      if (name === "query") return explained;
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
