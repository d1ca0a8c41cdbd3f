import { hasMethods } from "./driver.ts";

/** A library, or a driver of another database, that has no driver here. */
export interface ForeignClient {
  /** "a Drizzle database" */
  readonly name: string;
  /** The line that works where it was passed as the client of a store. */
  readonly fixClient: string;
  /** The line that works where it was passed as the transaction, to a store that was not made with it. */
  readonly fixTransaction: string;
}

/** A library with a bridge: `fromX` of "txbox/x". */
function bridged(name: string, call: string, from: string, transaction: string): ForeignClient {
  const client = `client: ${call}, imported from "txbox/${from}"`;
  return {
    name,
    fixClient: `Pass ${client}`,
    fixTransaction: `Create the store with ${client}, and pass ${transaction}`,
  };
}

/** A database that is not PostgreSQL. */
function elsewhere(name: string, fix: string): ForeignClient {
  return { name, fixClient: fix, fixTransaction: fix };
}

const POSTGRES_ONLY =
  "createPostgresStore works on PostgreSQL: client: new pg.Pool({ connectionString }), and transactions of that pool";

const drizzle = (what: string): ForeignClient =>
  bridged(`a Drizzle ${what}`, "fromDrizzle(db)", "drizzle", "the `tx` of db.transaction(async (tx) => …)");
const kysely = (what: string): ForeignClient =>
  bridged(
    `a Kysely ${what}`,
    "fromKysely(db, pool)",
    "kysely",
    "the `trx` of db.transaction().execute(async (trx) => …)",
  );
const knex = (what: string): ForeignClient =>
  bridged(`a Knex ${what}`, "fromKnex(knex)", "knex", "the `trx` of knex.transaction(async (trx) => …)");
const prisma = (what: string): ForeignClient =>
  bridged(`a Prisma ${what}`, "fromPrisma(prisma, pool)", "prisma", "the `tx` of prisma.$transaction(async (tx) => …)");
const typeorm = (what: string): ForeignClient =>
  bridged(
    `a TypeORM ${what}`,
    "fromTypeorm(dataSource)",
    "typeorm",
    "the `manager` of dataSource.transaction(async (manager) => …)",
  );
const mikroOrm = (what: string): ForeignClient =>
  bridged(
    `a MikroORM ${what}`,
    "fromMikroOrm(orm, pool)",
    "mikro-orm",
    "the `em` of orm.em.transactional(async (em) => …)",
  );
const sequelize = (what: string): ForeignClient =>
  bridged(
    `a Sequelize ${what}`,
    "fromSequelize(sequelize)",
    "sequelize",
    "the `t` of sequelize.transaction(async (t) => …)",
  );

type Known = readonly [is: (value: object) => boolean, foreign: ForeignClient];

const has =
  (...names: string[]) =>
  (value: object): boolean =>
    hasMethods(value, ...names);
const and =
  (...all: ((value: object) => boolean)[]) =>
  (value: object): boolean =>
    all.every((one) => one(value));
const holds = (name: string) => (value: object) => name in value;

const without =
  (name: string) =>
  (value: object): boolean =>
    !hasMethods(value, name);

const PG_PROMISE =
  "Pass its pool: client: db.$pool. Its transactions do not show their connection: begin on a client of db.$pool where you enqueue, or write a bridge";
const SLONIK =
  "Pass a pg.Pool of its own: client: new pg.Pool({ connectionString }). Its transactions do not show their connection: begin on a client of that pool where you enqueue, or write a bridge";
const ONLY_POSTGRES_JS = "Pass an instance of postgres.js (npm install postgres): client: postgres(url)";

const FOREIGN: readonly Known[] = [
  [and(has("select", "insert", "execute", "transaction", "rollback"), holds("_")), drizzle("transaction")],
  [and(has("select", "insert", "transaction"), holds("_"), holds("session")), drizzle("database")],
  [and(has("select", "insert", "execute", "transaction"), holds("_")), drizzle("database")],
  [
    and(
      has("selectFrom", "insertInto", "executeQuery"),
      (value) => (value as { isTransaction?: unknown }).isTransaction === true,
    ),
    kysely("transaction"),
  ],
  [has("selectFrom", "insertInto", "executeQuery"), kysely("instance")],
  [has("knex", "bindKnex", "query"), knex("model of Objection")],
  [and((value) => typeof value === "function", has("raw", "commit", "rollback")), knex("transaction")],
  [and((value) => typeof value === "function", has("raw", "transaction"), holds("client")), knex("instance")],
  [has("$queryRawUnsafe", "$executeRawUnsafe", "$connect"), prisma("client")],
  [has("$queryRawUnsafe", "$executeRawUnsafe"), prisma("transaction")],
  [has("query", "createQueryRunner", "getRepository"), typeorm("DataSource")],
  [has("query", "getRepository"), typeorm("EntityManager")],
  [has("query", "startTransaction"), typeorm("QueryRunner")],
  [has("transactional", "fork", "getConnection"), mikroOrm("EntityManager")],
  [and(has("getMetadata", "close"), holds("em")), mikroOrm("instance")],
  [has("query", "define", "model"), sequelize("instance")],
  [and(has("commit", "rollback"), holds("sequelize")), sequelize("transaction")],
  [has("query", "none", "any", "oneOrNone"), elsewhere("a pg-promise object", PG_PROMISE)],
  [has("query", "any", "maybeOne", "transaction"), elsewhere("a Slonik pool or transaction", SLONIK)],
  [and(has("unsafe"), without("typed")), elsewhere("an SQL client that is not postgres.js", ONLY_POSTGRES_JS)],
  [has("query", "request", "connect"), elsewhere("an mssql pool", POSTGRES_ONLY)],
  [has("request", "begin", "rollback"), elsewhere("an mssql transaction", POSTGRES_ONLY)],
  [has("query", "execute", "getConnection"), elsewhere("a mysql2 pool", POSTGRES_ONLY)],
  [has("query", "execute", "beginTransaction"), elsewhere("a mysql2 connection", POSTGRES_ONLY)],
  [has("prepare", "pragma", "transaction"), elsewhere("a better-sqlite3 database", POSTGRES_ONLY)],
  [
    has("db", "startSession"),
    elsewhere("a MongoClient", 'Use createMongoStore({ client }), imported from "txbox/mongodb"'),
  ],
  [
    has("inTransaction", "withTransaction", "endSession"),
    elsewhere("a session of MongoDB", 'Create the store with createMongoStore({ client }), from "txbox/mongodb"'),
  ],
];

const STORES = "Stores of txbox are PostgreSQL, PGlite and MongoDB";
const POOL = "client: new pg.Pool({ connectionString })";
const MONGO = 'Use createMongoStore({ client: new MongoClient(url) }), imported from "txbox/mongodb"';

/** What to say of a URL by its scheme. */
const OF_SCHEME: Readonly<Record<string, ForeignClient>> = {
  postgres: elsewhere("a URL", `Pass a pool that you make of it: ${POOL}`),
  mongodb: elsewhere("a URL of MongoDB", MONGO),
  mysql: elsewhere("a URL of MySQL", `${STORES}. On PostgreSQL pass ${POOL}`),
  mariadb: elsewhere("a URL of MariaDB", `${STORES}. On PostgreSQL pass ${POOL}`),
  sqlite: elsewhere("a URL of SQLite", `${STORES}. Without a server pass client: new PGlite(folder)`),
  file: elsewhere("a URL of a file", `${STORES}. Without a server pass client: new PGlite(folder)`),
};

/** Which of these libraries a value is of, by its structure; undefined: of none of them. */
export function foreignClient(value: object): ForeignClient | undefined {
  return FOREIGN.find(([is]) => isSafely(is, value))?.[1];
}

/** A URL in the place of a client. It may hold a password, so it is not shown. */
export function foreignUrl(value: unknown): ForeignClient | undefined {
  if (typeof value !== "string") return undefined;
  const [, scheme] = /^(\w{1,40})(?:\+\w+)?:\/\//.exec(value) ?? [];
  if (scheme === undefined) return undefined;
  const name = scheme.toLowerCase().replace(/^postgresql$/, "postgres");
  return Object.hasOwn(OF_SCHEME, name)
    ? OF_SCHEME[name]
    : elsewhere(`a URL of ${scheme}`, `${STORES}. On PostgreSQL pass ${POOL}`);
}

/** A proxy or a getter may throw. */
function isSafely(is: (value: object) => boolean, value: object): boolean {
  try {
    return is(value);
  } catch {
    return false;
  }
}
