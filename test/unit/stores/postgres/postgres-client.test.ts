import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { DRIVERS } from "../../../../src/stores/postgres/drivers/index.ts";
import { databaseOf, transactionRunner } from "../../../../src/stores/postgres/postgres-client.ts";

const method = (): undefined => undefined;
const methods = (...names: string[]): object => Object.fromEntries(names.map((name) => [name, method]));

const callable = (...names: string[]): object => Object.assign(() => undefined, methods(...names), { client: {} });

/** Root objects, and transactions, of libraries that have a bridge: the part of their structure that is theirs. */
const BRIDGED: [name: string, value: object, bridge: string][] = [
  [
    "a Drizzle database",
    { ...methods("select", "insert", "execute", "transaction"), _: {}, query: {}, $client: {} },
    "fromDrizzle(db)",
  ],
  [
    "a Drizzle transaction",
    { ...methods("select", "insert", "execute", "transaction", "rollback"), _: {}, query: {} },
    "fromDrizzle(db)",
  ],
  [
    "a Kysely instance",
    methods("selectFrom", "insertInto", "executeQuery", "transaction", "connection", "destroy"),
    "fromKysely(db, pool)",
  ],
  [
    "a Kysely transaction",
    { ...methods("selectFrom", "insertInto", "executeQuery", "getExecutor"), isTransaction: true },
    "fromKysely(db, pool)",
  ],
  ["a Knex instance", callable("raw", "transaction", "select"), "fromKnex(knex)"],
  ["a Knex transaction", callable("raw", "transaction", "commit", "rollback"), "fromKnex(knex)"],
  ["a Knex model of Objection", Object.assign(() => undefined, methods("knex", "bindKnex", "query")), "fromKnex(knex)"],
  [
    "a Prisma client",
    methods("$queryRawUnsafe", "$executeRawUnsafe", "$connect", "$transaction"),
    "fromPrisma(prisma, pool)",
  ],
  ["a Prisma transaction", methods("$queryRawUnsafe", "$executeRawUnsafe", "$transaction"), "fromPrisma(prisma, pool)"],
  [
    "a TypeORM DataSource",
    methods("query", "createQueryRunner", "getRepository", "transaction", "connect"),
    "fromTypeorm(dataSource)",
  ],
  ["a TypeORM EntityManager", methods("query", "getRepository", "transaction"), "fromTypeorm(dataSource)"],
  ["a TypeORM QueryRunner", methods("query", "connect", "startTransaction", "release"), "fromTypeorm(dataSource)"],
  [
    "a MikroORM EntityManager",
    methods("transactional", "fork", "getConnection", "getTransactionContext"),
    "fromMikroOrm(orm, pool)",
  ],
  ["a MikroORM instance", { ...methods("getMetadata", "close"), em: {} }, "fromMikroOrm(orm, pool)"],
  ["a Sequelize instance", methods("query", "define", "model", "transaction"), "fromSequelize(sequelize)"],
  ["a Sequelize transaction", { ...methods("commit", "rollback"), sequelize: {} }, "fromSequelize(sequelize)"],
];

/** Of other databases. */
const ELSEWHERE: [name: string, value: object, fix: string][] = [
  ["a mysql2 pool", methods("query", "execute", "getConnection", "end"), "new pg.Pool"],
  ["a mysql2 connection", methods("connect", "query", "execute", "beginTransaction"), "new pg.Pool"],
  ["a better-sqlite3 database", methods("prepare", "pragma", "transaction", "exec"), "new pg.Pool"],
  ["a pg-promise object", methods("connect", "query", "none", "any", "oneOrNone", "tx"), "client: db.$pool"],
  ["a Slonik pool or transaction", methods("connect", "query", "any", "maybeOne", "transaction"), "new pg.Pool"],
  ["an mssql pool", methods("connect", "query", "request", "close"), "new pg.Pool"],
  ["an mssql transaction", methods("begin", "commit", "rollback", "request"), "new pg.Pool"],
  ["an SQL client that is not postgres.js", methods("unsafe", "begin", "reserve", "savepoint"), "postgres(url)"],
  ["a MongoClient", methods("db", "startSession", "connect", "close"), "createMongoStore"],
  ["a session of MongoDB", methods("inTransaction", "withTransaction", "endSession"), "createMongoStore"],
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

  test.each(BRIDGED)("%s is named, with the line that works", (name, value, bridge) => {
    expect(error(() => databaseOf(value as never))).toMatchObject({
      code: "invalid_option",
      field: "client",
      message: expect.stringContaining(`got ${name}.`),
      fix: expect.stringMatching(/^Pass client: \w+\(.+\), imported from "txbox\/[a-z-]+"$/),
    });
    expect(error(() => databaseOf(value as never))).toHaveProperty("fix", expect.stringContaining(bridge));
  });

  test.each(ELSEWHERE)("%s is named, with what works", (name, value, fix) => {
    expect(error(() => databaseOf(value as never))).toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining(`got ${name}.`),
      fix: expect.stringContaining(fix),
    });
  });

  test.each([
    ["a URL", "postgres://user:secret@host/db", "new pg.Pool({ connectionString })"],
    [
      "a URL of MySQL",
      "mysql://user:secret@host/db",
      "Stores of txbox are PostgreSQL, PGlite and MongoDB. On PostgreSQL",
    ],
    ["a URL of SQLite", "sqlite://secret", "new PGlite(folder)"],
    ["a URL of MongoDB", "mongodb+srv://user:secret@host/db", "createMongoStore({ client: new MongoClient(url) })"],
    ["a URL of https", "https://user:secret@host/db", "Stores of txbox are PostgreSQL, PGlite and MongoDB"],
  ])("%s is named without its password, with what works", (name, value, fix) => {
    const thrown = error(() => databaseOf(value as never));
    expect(thrown).toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining(`got ${name}.`),
      fix: expect.stringContaining(fix),
    });
    expect(String(thrown)).not.toContain("secret");
  });

  test.each([
    ["undefined", undefined],
    ["a string", "user:secret@host/db"],
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

  test("what has connect and query like a pg.Client is none", () => {
    expect(error(() => databaseOf(methods("connect", "query") as never))).toMatchObject({
      message: expect.stringContaining("needs a client, got an object."),
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
  test.each(BRIDGED)(
    "%s in a store that was made with a pool is named, with both lines that work",
    (name, value, bridge) => {
      expect(error(() => transactionRunner(value as never))).toMatchObject({
        code: "no_transaction",
        field: "tx",
        message: expect.stringContaining(`got ${name}.`),
        fix: expect.stringContaining(`client: ${bridge}`),
      });
    },
  );

  test.each(ELSEWHERE)("is not %s", (name, value, fix) => {
    expect(error(() => transactionRunner(value as never))).toMatchObject({
      code: "no_transaction",
      message: expect.stringContaining(`got ${name}.`),
      fix: expect.stringContaining(fix),
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

  test.each([
    ["nothing", [null], true],
    ["its own statements", [{ text: "insert into t values ('commit')" }, { text: "select 1" }], true],
    ["BEGIN", [null, { text: "begin" }], true],
    ["COMMIT", [{ text: "select 1" }, { text: "COMMIT" }], false],
    ["ROLLBACK, and what comes after it", [{ text: "rollback;" }, { text: "select 1" }], false],
    ["ROLLBACK TO SAVEPOINT", [{ text: "rollback to savepoint a" }], true],
    ["COMMIT and the next BEGIN", [{ text: "commit" }, { text: "begin" }], true],
  ])("of node-postgres with %s under way", (_, [active, ...queue], open) => {
    const client = { query: method, getTransactionStatus: () => "T" };
    const busy = [
      { ...client, _activeQuery: active, _queryQueue: queue },
      { ...client, activeQuery: active, queryQueue: queue },
    ];
    for (const one of busy) {
      const found = error(() => transactionRunner(one as never));
      expect(found).toMatchObject(open ? { mayAutocommit: false } : { code: "no_transaction" });
    }
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
