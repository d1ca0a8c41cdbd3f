import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { fromDrizzle } from "../../../../src/stores/postgres/bridges/drizzle.ts";
import { fromKnex } from "../../../../src/stores/postgres/bridges/knex.ts";
import { fromKysely } from "../../../../src/stores/postgres/bridges/kysely.ts";
import { fromMikroOrm } from "../../../../src/stores/postgres/bridges/mikro-orm.ts";
import { fromPrisma } from "../../../../src/stores/postgres/bridges/prisma.ts";
import { fromSequelize } from "../../../../src/stores/postgres/bridges/sequelize.ts";
import { fromTypeorm } from "../../../../src/stores/postgres/bridges/typeorm.ts";

const method = (): undefined => undefined;
const methods = (...names: string[]): object => Object.fromEntries(names.map((name) => [name, method]));

// Only what is mistaken is made up here: what the bridges do is proven with the libraries, in examples/orms.
const pool = new pg.Pool();
const kysely = methods("selectFrom", "executeQuery", "getExecutor");
class MysqlAdapter {
  readonly supportsReturning = false;
  readonly supportsTransactionalDdl = false;
}
const kyselyOn = (adapter: object): object => ({ ...kysely, getExecutor: () => ({ adapter }) });
const prisma = methods("$queryRawUnsafe", "$executeRawUnsafe", "$connect", "$transaction");
const dataSource = { ...methods("transaction", "createQueryRunner"), driver: {} };
const mikroOrm = { em: methods("transactional", "getTransactionContext") };
const knex = (driverName: string): object =>
  Object.assign(() => undefined, methods("raw", "transaction"), { client: { driverName } });

const MISTAKES: [what: string, make: () => unknown, field: string, got: string][] = [
  ["Drizzle: a pool", () => fromDrizzle(pool as never), "db", "got a BoundPool"],
  ["Drizzle: nothing", () => fromDrizzle(undefined as never), "db", "got undefined"],
  [
    "Drizzle: on another database",
    () => fromDrizzle({ ...methods("select", "transaction"), $client: methods("query", "execute") } as never),
    "db",
    "got Drizzle on an object",
  ],
  ["Kysely: a pool", () => fromKysely(pool as never, pool), "db", "got a BoundPool"],
  ["Kysely: a transaction", () => fromKysely({ ...kysely, isTransaction: true } as never, pool), "db", "got an object"],
  ["Kysely: without its pool", () => fromKysely(kysely as never, undefined as never), "pool", "got undefined"],
  ["Kysely: a URL for a pool", () => fromKysely(kysely as never, "postgres://h/d" as never), "pool", "got a URL"],
  [
    "Kysely: PGlite for a pool",
    () => fromKysely(kysely as never, Object.create(PGlite.prototype) as never),
    "pool",
    "got a PGlite instance",
  ],
  [
    "Kysely: a single client for a pool",
    () => fromKysely(kysely as never, new pg.Client() as never),
    "pool",
    "needs a pg.Pool, got a single pg.Client",
  ],
  [
    "Kysely: on another database",
    () => fromKysely(kyselyOn(new MysqlAdapter()) as never, pool),
    "db",
    "got Kysely with a MysqlAdapter",
  ],
  ["Prisma: a transaction", () => fromPrisma(methods("$queryRawUnsafe") as never, pool), "prisma", "got an object"],
  ["Prisma: without its pool", () => fromPrisma(prisma as never, undefined as never), "pool", "got undefined"],
  ["Prisma: itself for a pool", () => fromPrisma(prisma as never, prisma as never), "pool", "got a Prisma client"],
  ["Knex: a pool", () => fromKnex(pool as never), "knex", "got a BoundPool"],
  ["Knex: on another database", () => fromKnex(knex("mysql2") as never), "knex", "the client mysql2"],
  [
    "TypeORM: not initialised",
    () => fromTypeorm({ ...methods("transaction", "createQueryRunner"), driver: {} } as never),
    "dataSource",
    "got an object",
  ],
  [
    "TypeORM: on another database",
    () => fromTypeorm({ ...dataSource, options: { type: "mysql" }, isInitialized: true } as never),
    "dataSource",
    'got a DataSource of the type "mysql"',
  ],
  [
    "TypeORM: of PostgreSQL, not initialised",
    () => fromTypeorm({ ...dataSource, options: { type: "postgres" }, isInitialized: false } as never),
    "dataSource",
    'got a DataSource of the type "postgres" that is not initialised',
  ],
  ["TypeORM: nothing", () => fromTypeorm(null as never), "dataSource", "got null"],
  ["MikroORM: an EntityManager", () => fromMikroOrm(mikroOrm.em as never, pool), "orm", "got an object"],
  ["MikroORM: a promise of it", () => fromMikroOrm(Promise.resolve() as never, pool), "orm", "got a Promise"],
  ["MikroORM: without its pool", () => fromMikroOrm(mikroOrm as never, undefined as never), "pool", "got undefined"],
  [
    "Sequelize: on another database",
    () => fromSequelize({ ...methods("query", "define"), getDialect: () => "mysql" } as never),
    "sequelize",
    "got Sequelize on mysql",
  ],
  ["Sequelize: a URL", () => fromSequelize("postgres://u:secret@h/d" as never), "sequelize", "got a string"],
];

describe("a bridge", () => {
  test.each(MISTAKES)("is not made of a mistake: %s", (_, make, field, got) => {
    expect(make).toThrow(
      expect.objectContaining({
        code: "invalid_option",
        field,
        message: expect.stringContaining(got),
        fix: expect.stringMatching(/^Pass /),
      }),
    );
  });

  test.each([
    ["Kysely", fromKysely(kysely as never, pool), kysely],
    ["Prisma", fromPrisma(prisma as never, pool), prisma],
    ["Knex", fromKnex(knex("pg") as never), knex("pg")],
    ["MikroORM", fromMikroOrm(mikroOrm as never, pool), methods("transactional", "getTransactionContext")],
  ])("of %s takes no root for a transaction, and knows nothing of what is not its own", (_, bridge, root) => {
    expect(() => bridge.statementsOf(root)).toThrow(expect.objectContaining({ code: "no_transaction", field: "tx" }));
    expect(bridge.statementsOf(pool)).toBeUndefined();
    expect(bridge.statementsOf({})).toBeUndefined();
  });
});
