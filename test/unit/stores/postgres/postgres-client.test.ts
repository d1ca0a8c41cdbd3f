import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { DRIVERS } from "../../../../src/stores/postgres/drivers/index.ts";
import { databaseOf, transactionRunner } from "../../../../src/stores/postgres/postgres-client.ts";

const method = (): undefined => undefined;
const methods = (...names: string[]): object => Object.fromEntries(names.map((name) => [name, method]));

/** Root objects, and transactions, of libraries that have no driver here: the part of their structure that is theirs. */
const FOREIGN: [name: string, value: object][] = [
  ["a Drizzle database", { ...methods("select", "insert", "execute", "transaction"), _: {}, query: {}, $client: {} }],
  ["a Drizzle database", { ...methods("select", "insert", "execute", "transaction", "rollback"), _: {}, query: {} }],
  ["a Kysely instance", methods("selectFrom", "insertInto", "executeQuery", "transaction", "connection", "destroy")],
  ["a Knex instance", Object.assign(() => undefined, methods("raw", "transaction", "select"), { client: {} })],
  ["a Prisma client", methods("$queryRawUnsafe", "$executeRawUnsafe", "$connect", "$transaction")],
  ["a TypeORM DataSource", methods("query", "createQueryRunner", "getRepository", "transaction", "connect")],
  ["a TypeORM EntityManager", methods("query", "getRepository", "transaction")],
  ["a TypeORM QueryRunner", methods("query", "connect", "startTransaction", "release")],
  ["a Sequelize instance", methods("query", "define", "model", "transaction")],
];

const error = (run: () => unknown): unknown => {
  try {
    return run();
  } catch (thrown) {
    return thrown;
  }
};

describe("a client", () => {
  const pool = new pg.Pool();
  const sql = postgres("postgres://127.0.0.1:1/none");
  // Its methods without its server.
  const pglite = Object.create(PGlite.prototype) as object;

  test.each([
    ["a pg.Pool", pool],
    ["a postgres.js instance", sql],
    ["a PGlite instance", pglite],
  ])("%s belongs to one driver, and to no other", (wants, client) => {
    expect(DRIVERS.filter((driver) => driver.isClient(client)).map((driver) => driver.wants)).toEqual([wants]);
  });

  test.each(FOREIGN)("%s is named, with the line that works", (name, value) => {
    expect(error(() => databaseOf(value as never))).toMatchObject({
      code: "invalid_option",
      field: "client",
      message: expect.stringContaining(`got ${name}.`),
      fix: expect.stringContaining("client: "),
    });
  });

  test.each([
    ["undefined", undefined],
    ["a string", "postgres://user:secret@host/db"],
    ["an object", {}],
    ["a function", method],
  ])("%s is none, and every driver is offered", (kind, value) => {
    expect(error(() => databaseOf(value as never))).toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining(`got ${kind}.`),
      fix: "Pass a pg.Pool, a postgres.js instance or a PGlite instance",
    });
  });

  test("a single pg.Client is told from a pool", () => {
    expect(error(() => databaseOf(new pg.Client() as never))).toMatchObject({
      message: expect.stringContaining("a single pg.Client"),
    });
  });

  test("one whose properties throw is refused, not read further", () => {
    const hostile = new Proxy(
      {},
      {
        get: () => {
          throw new Error("no");
        },
        has: () => true,
      },
    );
    expect(error(() => databaseOf(hostile as never))).toMatchObject({ code: "invalid_option" });
    expect(error(() => transactionRunner(hostile as never))).toMatchObject({ code: "no_transaction" });
  });
});

describe("a transaction", () => {
  test.each(FOREIGN)("of %s is named, with the line that works", (name, value) => {
    expect(error(() => transactionRunner(value as never))).toMatchObject({
      code: "no_transaction",
      field: "tx",
      message: expect.stringContaining(`got ${name}.`),
      fix: expect.stringContaining("pool.connect()"),
    });
  });

  test.each([
    ["a pg.Pool", new pg.Pool()],
    ["the postgres.js instance", postgres("postgres://127.0.0.1:1/none")],
    ["the PGlite instance", methods("exec", "query", "transaction")],
    ["a client outside a transaction", { query: method, getTransactionStatus: () => "I" }],
    ["null", null],
  ])("is not %s", (got, value) => {
    expect(error(() => transactionRunner(value as never))).toMatchObject({
      code: "no_transaction",
      message: expect.stringContaining(`got ${got}.`),
    });
  });

  test("of node-postgres has one runner, which follows its state", () => {
    let status: string | null = "T";
    const client = { query: method, getTransactionStatus: () => status };
    const runner = transactionRunner(client as never);
    expect(runner.mayAutocommit).toBe(false);
    status = null;
    expect(transactionRunner(client as never)).toBe(runner);
    expect(runner.mayAutocommit).toBe(true);
    status = "I";
    expect(() => transactionRunner(client as never)).toThrow("outside a transaction");
  });
});
