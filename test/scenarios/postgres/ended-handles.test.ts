import { setTimeout as sleep } from "node:timers/promises";
import postgres, { type TransactionSql } from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, migratedDatabase } from "../../harness/shared-postgres.ts";

const message = (key: string) => ({ stream: "s", type: "t", key, payload: 1 });
const refused = { code: "no_transaction", message: expect.stringContaining("has ended") };
const undone = new Error("undone");

describe.skipIf(!hasPostgres())("a transaction of postgres.js", () => {
  let database: TestDatabase;
  const instances: postgres.Sql[] = [];
  const open = (): postgres.Sql => {
    const sql = postgres(database.url, { max: 1, onnotice: () => undefined });
    instances.push(sql);
    return sql;
  };
  const outboxOf = (sql: postgres.Sql) => createOutbox({ store: createPostgresStore({ client: sql }) });
  const keys = async (sql: postgres.Sql): Promise<unknown[]> =>
    (await sql.unsafe("select key from txbox.message order by position")).map(({ key }) => key as unknown);

  beforeAll(async () => {
    database = await migratedDatabase();
  });
  afterAll(async () => {
    await Promise.all(instances.map((sql) => sql.end({ timeout: 2 })));
    await database.drop();
  });

  test("of the store's instance: a savepoint that has ended is refused, and so is one whose transaction has", async () => {
    const sql = open();
    const outbox = outboxOf(sql);
    let kept!: TransactionSql;
    await sql.begin(async (tx) => {
      let released!: TransactionSql;
      await tx.savepoint("named", async (inner) => {
        await outbox.enqueue(inner, message("inner"));
        await outbox.enqueue(tx, message("outer"));
        released = inner;
      });
      await expect(outbox.enqueue(released, message("late"))).rejects.toMatchObject(refused);
      await tx
        .savepoint((inner) => {
          kept = inner;
          throw undone;
        })
        .catch(() => undefined);
      await expect(outbox.enqueue(kept, message("late"))).rejects.toMatchObject(refused);
      void tx.savepoint(async (inner) => {
        kept = inner;
        await sleep(50);
      });
      await sleep(10);
    });
    await expect(outbox.enqueue(kept, message("late"))).rejects.toMatchObject(refused);
    await sql.begin((tx) => [tx`select 1`, tx`select 2`]);
    expect(await sql.begin("read only", (tx) => tx`select 1 as one`)).toMatchObject([{ one: 1 }]);
    expect(await keys(sql)).toEqual(["inner", "outer"]);
  });

  test.each(["of another instance", "begun before the store was made"])(
    "%s: taken while it is open, alone",
    async (which) => {
      const sql = open();
      const outbox = which === "of another instance" ? outboxOf(open()) : undefined;
      const began = await keys(sql);
      for (const how of ["commit", "rollback"] as const) {
        let ended!: TransactionSql;
        let made = outbox;
        const begin = sql.begin.bind(sql);
        const ending = begin(async (tx) => {
          const open = (made ??= outboxOf(sql));
          await Promise.all(["a", "b", "c"].map((key) => open.enqueue(tx, message(`${how} ${key}`))));
          const slow = tx`select pg_sleep(0.05)`.execute();
          await open.enqueue(tx, [message(`${how} d`), message(`${how} e`)]);
          await slow;
          ended = tx;
          if (how === "rollback") throw undone;
        });
        await Promise.allSettled([ending]);
        const late = made as NonNullable<typeof made>;
        await expect(late.enqueue(ended, message("late"))).rejects.toMatchObject(refused);
        await begin(async (tx) => {
          await tx`select 1`;
          await expect(late.enqueue(ended, message("late"))).rejects.toMatchObject(refused);
          await late.enqueue(tx, message(`after ${how}`));
          await tx`select 1`;
        });
        // Nothing of it stays behind on the connection.
        expect(await sql`select 1 as one`).toMatchObject([{ one: 1 }]);
      }
      expect((await keys(sql)).slice(began.length)).toEqual([
        ..."abcde".split("").map((key) => `commit ${key}`),
        "after commit",
        "after rollback",
      ]);
    },
  );

  test("that is reserved by hand is named", async () => {
    const sql = open();
    const outbox = outboxOf(sql);
    const reserved = await sql.reserve();
    await expect(outbox.enqueue(reserved as never, message("late"))).rejects.toThrow(
      "a reserved connection of postgres.js",
    );
    reserved.release();
  });
});
