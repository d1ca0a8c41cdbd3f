import { hasMethods } from "./driver.ts";

/** A library that has a client of its own and no driver here. */
export interface ForeignClient {
  /** "a Drizzle database" */
  readonly name: string;
  /** The line that works instead of it. */
  readonly fix: string;
}

const POOL_OF_YOUR_OWN = "Pass a pool on the same database: client: new pg.Pool({ connectionString })";

const FOREIGN: readonly (ForeignClient & { readonly is: (value: object) => boolean })[] = [
  {
    name: "a Drizzle database",
    fix: "Pass the client that it was made with: client: db.$client",
    is: (value) => hasMethods(value, "select", "insert", "execute", "transaction") && "_" in value,
  },
  {
    name: "a Kysely instance",
    fix: "Pass the pool that its dialect was made with: client: pool",
    is: (value) => hasMethods(value, "selectFrom", "insertInto", "executeQuery"),
  },
  {
    name: "a Knex instance",
    fix: POOL_OF_YOUR_OWN,
    is: (value) => typeof value === "function" && hasMethods(value, "raw", "transaction") && "client" in value,
  },
  {
    name: "a Prisma client",
    fix: POOL_OF_YOUR_OWN,
    is: (value) => hasMethods(value, "$queryRawUnsafe", "$executeRawUnsafe"),
  },
  {
    name: "a TypeORM DataSource",
    fix: "Pass its pg.Pool: client: dataSource.driver.master",
    is: (value) => hasMethods(value, "query", "createQueryRunner", "getRepository"),
  },
  {
    name: "a TypeORM EntityManager",
    fix: POOL_OF_YOUR_OWN,
    is: (value) => hasMethods(value, "query", "getRepository"),
  },
  {
    name: "a TypeORM QueryRunner",
    fix: POOL_OF_YOUR_OWN,
    is: (value) => hasMethods(value, "query", "startTransaction"),
  },
  { name: "a Sequelize instance", fix: POOL_OF_YOUR_OWN, is: (value) => hasMethods(value, "query", "define", "model") },
];

/** Which of these libraries a value is of, by its structure; undefined: of none of them. */
export function foreignClient(value: object): ForeignClient | undefined {
  return FOREIGN.find(({ is }) => is(value));
}
