import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";

/** With node-postgres BEGIN and the receipt are one round trip, with values as literals. */
describe.skipIf(!hasPostgres())("the receipt that opens a transaction", () => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url });
    await createPostgresStore({ client: pool }).migrator.migrate();
    await pool.query("create table effect (what text)");
    await pool.end();
  });
  afterAll(() => database.drop());

  async function withStore<T>(
    options: string,
    use: (store: ReturnType<typeof createPostgresStore<pg.Pool>>, pool: pg.Pool, sent: string[]) => Promise<T>,
  ): Promise<T> {
    const pool = new pg.Pool({ connectionString: database.url, options, max: 2 });
    const sent: string[] = [];
    pool.on("connect", (client) => {
      const query = client.query.bind(client) as (...args: unknown[]) => unknown;
      Object.assign(client, {
        query: (first: string | { text: string }, ...rest: unknown[]) => {
          sent.push(typeof first === "string" ? first : first.text);
          return query(first, ...rest);
        },
      });
    });
    try {
      const store = createPostgresStore({ client: pool });
      // The first statement of a store looks at the search path.
      await store.migrator.check();
      sent.length = 0;
      return await use(store, pool, sent);
    } finally {
      await pool.end();
    }
  }

  const receipt = (messageId: string) => ({ consumer: "c", messageId, type: "t", correlationId: null });

  it("takes three round trips with a handler of one statement", async () => {
    await withStore("", async ({ ledger }, _, sent) => {
      await ledger.transaction(async (tx) => {
        expect(await ledger.receive(tx, receipt("round-trips"), "processed")).toBe(true);
        await tx.query("select 1");
      });
      expect(sent.map((text) => text.split(" ")[0])).toEqual(["begin;", "select", "commit"]);
    });
  });

  it.each(["on", "off"])("quotes what it is given, with standard_conforming_strings %s", async (setting) => {
    await withStore(`-c standard_conforming_strings=${setting}`, async ({ ledger }, pool) => {
      const nasty = String.raw`it's \'; drop table effect; -- \\ "ü🎉" ` + setting;
      const given = { consumer: "c'\\", messageId: nasty, type: "t\\'", correlationId: "k'\\''" };
      const first = await ledger.transaction((tx) => ledger.receive(tx, given, "processed"));
      const again = await ledger.transaction((tx) => ledger.receive(tx, given, "processed"));
      expect([first, again]).toEqual([true, false]);
      const { rows } = await pool.query(
        "select consumer, message_id, type, correlation_id from txbox.receipt where message_id = $1",
        [nasty],
      );
      expect(rows).toEqual([{ consumer: "c'\\", message_id: nasty, type: "t\\'", correlation_id: "k'\\''" }]);
    });
  });

  it("begins at the latest with the first statement of its user, and rolls back with him", async () => {
    await withStore("", async ({ ledger }, pool) => {
      const failing = ledger.transaction(async (tx) => {
        await tx.query("insert into effect values ('first')");
        await ledger.receive(tx, receipt("after the first"), "processed");
        throw new Error("no");
      });
      await expect(failing).rejects.toThrow("no");
      expect((await pool.query("select * from effect")).rows).toEqual([]);
      const { rows } = await pool.query("select * from txbox.receipt where message_id = 'after the first'");
      expect(rows).toEqual([]);
    });
  });

  it("sends nothing for a transaction without a statement", async () => {
    await withStore("", async ({ ledger }, _, sent) => {
      expect(await ledger.transaction(async () => 7)).toBe(7);
      await expect(ledger.transaction(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
      expect(sent).toEqual([]);
    });
  });
});
