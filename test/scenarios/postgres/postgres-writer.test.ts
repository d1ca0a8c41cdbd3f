import pg from "pg";
import postgres from "postgres";
import { PGlite } from "@electric-sql/pglite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import type { PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import {
  openDriver,
  storeParts,
  type Driver,
  type DriverName,
  type StoreParts,
} from "../../support/postgres-drivers.ts";

const NAMES = { schema: 'Tx "box" ü', tablePrefix: "my'Pre.fix$1_" };

describe.skipIf(!hasPostgres()).each<DriverName>(["node-postgres", "postgres.js", "PGlite"])("writer on %s", (name) => {
  let base: TestDatabase;
  let driver: Driver;
  let store: StoreParts;

  beforeAll(async () => {
    base = await testDatabase();
    driver = openDriver(name, base.url);
    store = storeParts(driver, NAMES);
    await store.migrator.migrate();
    await store.database.exec("create table own (id int)");
  });
  afterAll(async () => {
    await driver.close();
    await base.drop();
  });

  const rows = (where = "true") =>
    store.database.query(
      `select id, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, encode(body, 'hex'), size
       from ${store.names.message} where ${where} order by position`,
    );
  const outbox = () => createOutbox({ store });
  const message = (more: object = {}) => ({ stream: "s", type: "t", payload: { n: 1 }, ...more });

  it("writes every field", async () => {
    const { id, duplicate } = await store.inTransaction((tx) =>
      outbox().enqueue(tx, {
        stream: "orders",
        type: "order_created",
        payload: { text: "Grüße, 世界 🎉 'quoted' \"twice\" \\ {a,b} \u0000", n: 1.5 },
        aggregateType: "order",
        aggregateId: "o-1",
        headers: { correlationId: "c-1", schemaVersion: 2, note: 'ü {x} "y" \\' },
      }),
    );
    expect(duplicate).toBe(false);
    const [row] = await rows(`id = '${id}'`);
    expect(row?.slice(0, 7)).toEqual([id, "orders", "order_created", "o-1", "order", "o-1", "c-1"]);
    expect(JSON.parse(String(row?.[7]))).toEqual({ schemaVersion: 2, note: 'ü {x} "y" \\' });
    expect(JSON.parse(String(row?.[8]))).toEqual({ text: "Grüße, 世界 🎉 'quoted' \"twice\" \\ {a,b} \u0000", n: 1.5 });
    expect(row?.[9]).toBeNull();
    expect(Number(row?.[10])).toBe(Buffer.byteLength(String(row?.[8])) + Buffer.byteLength(String(row?.[7])));
  });

  it("writes nulls for what is absent", async () => {
    const { id } = await store.inTransaction((tx) => outbox().enqueue(tx, { stream: "s", type: "t", payload: null }));
    expect(await rows(`id = '${id}'`)).toEqual([[id, "s", "t", null, null, null, null, null, "null", null, "4"]]);
  });

  it("writes bytes, one and many", async () => {
    const payload = new Uint8Array([0, 255, 92, 34]);
    const one = await store.inTransaction((tx) => outbox().enqueue(tx, message({ payload })));
    const many = await store.inTransaction((tx) =>
      outbox().enqueue(tx, [message({ payload }), message({ payload: "ü", headers: { contentType: "text/plain" } })]),
    );
    const found = await rows(`id in ('${one.id}', '${many[0]?.id}', '${many[1]?.id}')`);
    expect(found.map((row) => row[9])).toEqual(["00ff5c22", "00ff5c22", "c3bc"]);
    expect(found.map((row) => row[8])).toEqual([null, null, null]);
    expect(JSON.parse(String(found[0]?.[7]))).toEqual({ contentType: "application/octet-stream" });
  });

  it("keeps the order of a batch, also a mixed one", async () => {
    const batch = Array.from({ length: 500 }, (_, i) =>
      message({ type: "ordered", payload: i, ...(i % 3 === 0 ? { id: `mixed-${500 - i}` } : {}) }),
    );
    await store.inTransaction((tx) => outbox().enqueue(tx, batch));
    expect((await rows("type = 'ordered'")).map((row) => Number(row[8]))).toEqual(batch.map((_, i) => i));
  });

  it("takes ten thousand at once", async () => {
    const batch = Array.from({ length: 10_000 }, (_, i) =>
      message({ type: "huge", key: `k${i % 7}`, payload: { i, text: '"{}\\\n,NULL' } }),
    );
    const enqueued = await store.inTransaction((tx) => outbox().enqueue(tx, batch));
    expect(new Set(enqueued.map(({ id }) => id)).size).toBe(10_000);
    const found = await rows("type = 'huge'");
    expect(found.map((row) => row[0])).toEqual(enqueued.map(({ id }) => id));
    expect(JSON.parse(String(found[9_999]?.[8]))).toEqual({ i: 9_999, text: '"{}\\\n,NULL' });
  });

  it("rolls back with the transaction, and with a savepoint", async () => {
    const before = (await rows()).length;
    const failing = store.inTransaction(async (tx, query) => {
      await query("insert into own values (1)");
      await outbox().enqueue(tx, message());
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    await store.inTransaction(async (tx, query) => {
      await outbox().enqueue(tx, message({ type: "kept" }));
      await query("savepoint a");
      await outbox().enqueue(tx, message({ type: "undone", id: "savepoint-1" }));
      await query("rollback to savepoint a");
    });
    expect((await rows()).length).toBe(before + 1);
    // The id of what was undone is free.
    expect(await store.inTransaction((tx) => outbox().enqueue(tx, message({ id: "savepoint-1" })))).toEqual({
      id: "savepoint-1",
      duplicate: false,
    });
  });

  it("drops the second of a chosen id", async () => {
    const first = await store.inTransaction((tx) => outbox().enqueue(tx, message({ id: "chosen-1" })));
    const second = await store.inTransaction((tx) => outbox().enqueue(tx, message({ id: "chosen-1", payload: 2 })));
    const many = await store.inTransaction((tx) =>
      outbox().enqueue(tx, [message({ id: "chosen-2" }), message({ id: "chosen-1" }), message()]),
    );
    expect([first.duplicate, second.duplicate, ...many.map((one) => one.duplicate)]).toEqual([
      false,
      true,
      false,
      true,
      false,
    ]);
    expect((await rows("id like 'chosen-%'")).map((row) => row[0])).toEqual(["chosen-1", "chosen-2"]);
  });

  it("schedules what is later, logs what is past, cancels", async () => {
    const soon = new Date(Date.now() + 3_600_000);
    const past = new Date(Date.now() - 3_600_000);
    const enqueued = await store.inTransaction((tx) =>
      outbox().enqueue(tx, [
        message({ id: "past", deliverAt: past }),
        message({ id: "later", deliverAt: soon }),
        message({ deliverAt: soon }),
        message(),
      ]),
    );
    const single = await store.inTransaction((tx) =>
      outbox().enqueue(tx, message({ deliverAt: soon, payload: new Uint8Array([1]) })),
    );
    expect(enqueued.map(({ duplicate }) => duplicate)).toEqual([false, false, false, false]);
    expect((await rows("id = 'past'")).length).toBe(1);
    const scheduled = await store.database.query(
      `select id, deliver_at = to_timestamp($1::text::float8 / 1000), encode(body, 'hex') from ${store.names.scheduled} order by n`,
      [String(soon.getTime())],
    );
    expect(scheduled).toEqual(
      [
        ["later", "t", null],
        [enqueued[2]?.id, "t", null],
        [single.id, "t", "01"],
      ].map((row) => row.map((value) => value ?? null)),
    );
    const again = await store.inTransaction((tx) => outbox().enqueue(tx, message({ id: "later", deliverAt: soon })));
    expect(again.duplicate).toBe(true);
    const cancel = (id: string) => store.inTransaction((tx) => outbox().cancel(tx, id));
    expect([await cancel("later"), await cancel("later"), await cancel(single.id), await cancel("past")]).toEqual([
      true,
      false,
      true,
      false,
    ]);
    expect((await store.inTransaction((tx) => outbox().enqueue(tx, message({ id: "later" })))).duplicate).toBe(false);
  });

  it("locks a key", async () => {
    await store.inTransaction(async (tx, query) => {
      await outbox().lockKey(tx, { stream: "s", key: "k'ü" });
      // Other databases of the server have locks too.
      const held = "locktype = 'advisory' and granted and pid = pg_backend_pid()";
      expect(await query(`select count(*) from pg_locks where ${held}`)).toEqual([["1"]]);
    });
  });

  it("explains a missing schema", async () => {
    const elsewhere = storeParts(driver, { schema: "nowhere" });
    const enqueue = (batch: object) =>
      elsewhere.inTransaction((tx) => createOutbox({ store: elsewhere }).enqueue(tx, batch as never));
    await expect(enqueue(message())).rejects.toMatchObject({ code: "schema_missing" });
    await expect(enqueue([message(), message({ id: "x" })])).rejects.toMatchObject({ code: "schema_missing" });
  });
});

describe.skipIf(!hasPostgres())("writer without a transaction", () => {
  let base: TestDatabase;
  let driver: Driver;
  let store: StoreParts;

  beforeAll(async () => {
    base = await testDatabase();
    driver = openDriver("node-postgres", base.url);
    store = storeParts(driver);
    await store.migrator.migrate();
  });
  afterAll(async () => {
    await driver.close();
    await base.drop();
  });

  async function refused(tx: unknown): Promise<void> {
    const outbox = createOutbox({ store });
    const message = { stream: "s", type: "t", payload: 1 };
    const refusal = { code: "no_transaction", field: "tx" };
    await expect(outbox.enqueue(tx as PostgresTx, message)).rejects.toMatchObject(refusal);
    await expect(outbox.enqueue(tx as PostgresTx, [message, { ...message, id: "x" }])).rejects.toMatchObject(refusal);
    await expect(outbox.lockKey(tx as PostgresTx, { stream: "s", key: "k" })).rejects.toMatchObject(refusal);
    await expect(outbox.cancel(tx as PostgresTx, "x")).rejects.toMatchObject(refusal);
    expect(
      await store.database.query(
        `select (select count(*) from ${store.names.message}) + (select count(*) from ${store.names.enqueued_id})`,
      ),
    ).toEqual([["0"]]);
  }

  it("refuses nothing, null and other values", async () => {
    for (const tx of [undefined, null, 1, "tx", {}, () => 1]) await refused(tx);
  });

  it("refuses a pool", () => refused(driver.client));

  it("refuses a pg.Client before BEGIN and after COMMIT, and takes it between", async () => {
    const client = new pg.Client(base.url);
    await client.connect();
    await refused(client);
    // Older versions of pg, and wrappers, do not tell.
    const silent = { query: (config: object) => client.query(config as pg.QueryConfig) };
    await refused(silent);
    for (const tx of [client, silent]) {
      await client.query("begin");
      await createOutbox({ store }).enqueue(tx, { stream: "s", type: "t", payload: 1 });
      await client.query("rollback");
      await refused(tx);
    }
    await client.end();
  });

  it("refuses the root of postgres.js and PGlite", async () => {
    const sql = postgres(base.url, { max: 1 });
    await refused(sql);
    await sql.end();
    const db = new PGlite();
    await refused(db);
    await db.close();
  });
});

describe.skipIf(!hasPostgres()).each<DriverName>(["node-postgres", "postgres.js"])(
  "concurrent writers on %s",
  (name) => {
    let base: TestDatabase;
    let driver: Driver;
    let store: StoreParts;

    beforeAll(async () => {
      base = await testDatabase();
      driver = openDriver(name, base.url, 20);
      store = storeParts(driver);
      await store.migrator.migrate();
    });
    afterAll(async () => {
      await driver.close();
      await base.drop();
    });

    it("makes the second of a chosen id wait for the first, and decides by how that ended", async () => {
      for (const end of ["commit", "rollback"] as const) {
        const outbox = createOutbox({ store });
        const message = { stream: "s", type: "t", payload: 1, id: `race-${end}` };
        const firstWrote = Promise.withResolvers<void>();
        const release = Promise.withResolvers<void>();
        const first = store
          .inTransaction(async (tx) => {
            await outbox.enqueue(tx, message);
            firstWrote.resolve();
            await release.promise;
            if (end === "rollback") throw new Error("rolled back");
          })
          .catch(() => undefined);
        await firstWrote.promise;
        let done = false;
        const second = store.inTransaction((tx) => outbox.enqueue(tx, message)).finally(() => (done = true));
        await new Promise((resolve) => setTimeout(resolve, 100));
        expect(done).toBe(false);
        release.resolve();
        await first;
        expect((await second).duplicate).toBe(end === "commit");
        expect(
          await store.database.query(`select count(*) from ${store.names.message} where id = 'race-${end}'`),
        ).toEqual([["1"]]);
      }
    });

    it("does not deadlock on batches with the same ids in another order", async () => {
      const outbox = createOutbox({ store });
      const ids = Array.from({ length: 50 }, (_, i) => `same-${i}`);
      const batch = (of: string[]) => of.map((id) => ({ stream: "s", type: "same", payload: id, id }));
      const results = await Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          store.inTransaction((tx) => outbox.enqueue(tx, batch(i % 2 === 0 ? ids : ids.toReversed()))),
        ),
      );
      expect(results.flat().filter(({ duplicate }) => !duplicate).length).toBe(50);
      expect(await store.database.query(`select count(*) from ${store.names.message} where type = 'same'`)).toEqual([
        ["50"],
      ]);
    });

    it("serialises the writers of a locked key", async () => {
      const outbox = createOutbox({ store });
      let inside = 0;
      let most = 0;
      await Promise.all(
        Array.from({ length: 8 }, () =>
          store.inTransaction(async (tx) => {
            await outbox.lockKey(tx, { stream: "s", key: "k" });
            most = Math.max(most, ++inside);
            await new Promise((resolve) => setTimeout(resolve, 5));
            inside--;
          }),
        ),
      );
      expect(most).toBe(1);
    });
  },
);
