import type { Store } from "../core/contracts.ts";
import type { PostgresClient } from "../stores/postgres/postgres-client.ts";
import { createMongoStore } from "../stores/mongodb/mongodb-store.ts";
import {
  createPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from "../stores/postgres/postgres-store.ts";
import type { TxboxConfig } from "./define-config.ts";
import { importMongo, importPg, importPglite } from "./import-driver.ts";
import { UsageError } from "./usage-error.ts";

export interface OpenStore {
  readonly store: Store;
  /** Where the messages are, without the password. */
  readonly where: string;
  readonly close: () => Promise<void>;
}

export interface StoreSettings {
  readonly config: TxboxConfig;
  readonly url: string | undefined;
  readonly schema: string | undefined;
  readonly tablePrefix: string | undefined;
  /** PGHOST or PGDATABASE are set: node-postgres reads them by itself. */
  readonly fromPgEnvironment: boolean;
  readonly cwd: string;
}

/** The store of the configuration, or one on a connection of its own. */
export async function openStore(settings: StoreSettings): Promise<OpenStore> {
  const { config, url, cwd, fromPgEnvironment } = settings;
  if (url === undefined && config.store !== undefined) {
    const store = typeof config.store === "function" ? await config.store() : config.store;
    if (typeof store?.admin?.relays !== "function")
      throw new UsageError("The store of the configuration is not a txbox store");
    return { store, where: "the store of the configuration", close: async () => undefined };
  }
  const from = url ?? config.database?.url;
  if (from === undefined && !fromPgEnvironment) {
    throw new UsageError(
      "Which database? Give --database-url, set TXBOX_DATABASE_URL or DATABASE_URL, or write txbox.config.ts",
    );
  }
  if (from !== undefined && isMongoUrl(from)) return openMongo(from, settings);
  const { client, where, close } =
    from?.startsWith("pglite:") === true ? await openPglite(from, cwd) : await openPg(from, cwd);
  const options = postgresOptions(config);
  const { schema = options.schema, tablePrefix = options.tablePrefix } = settings;
  const names = { ...(schema === undefined ? {} : { schema }), ...(tablePrefix === undefined ? {} : { tablePrefix }) };
  return { store: createPostgresStore({ ...options, ...names, client }), where, close };
}

function postgresOptions({ database = {} }: TxboxConfig): Omit<PostgresStoreOptions, "client"> {
  const { schema, tablePrefix, segmentMs, retentionMs, abandonAfterMs, receiptRetentionMs } = database;
  return given({ schema, tablePrefix, segmentMs, retentionMs, abandonAfterMs, receiptRetentionMs });
}

function given<T extends object>(options: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
}

/** Grants and rebase are PostgreSQL's. */
export function requirePostgres(store: Store): PostgresStore {
  if ("rebase" in store && "grants" in store) return store as Store & PostgresStore;
  throw new UsageError(`The store "${store.name}" has no such command`);
}

interface OpenClient {
  readonly client: PostgresClient;
  readonly where: string;
  readonly close: () => Promise<void>;
}

const CONNECT_TIMEOUT_MS = 10_000;

function isMongoUrl(url: string): boolean {
  return url.startsWith("mongodb://") || url.startsWith("mongodb+srv://");
}

async function openMongo(url: string, { config, cwd }: StoreSettings): Promise<OpenStore> {
  const { MongoClient } = await importMongo(cwd);
  const client = new MongoClient(url, { appName: "txbox", serverSelectionTimeoutMS: CONNECT_TIMEOUT_MS });
  const { collection, inboxCollection, transactions, retentionMs, receiptRetentionMs } = config.database ?? {};
  const { source, onEvent } = config.database ?? {};
  const options = given({
    collection,
    inboxCollection,
    transactions,
    retentionMs,
    receiptRetentionMs,
    source,
    onEvent,
  });
  const where = url.replace(/^[^@]*@|^mongodb(?:\+srv)?:\/\//, "").replace(/\?.*$/, "");
  return { store: createMongoStore({ client, ...options }), where, close: () => client.close() };
}

async function openPg(url: string | undefined, cwd: string): Promise<OpenClient> {
  const where = url === undefined ? "the server of PGHOST and PGDATABASE" : describeUrl(url);
  const { default: pg } = await importPg(cwd);
  const pool = new pg.Pool({
    ...(url === undefined ? {} : { connectionString: url }),
    application_name: "txbox",
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  // A connection that breaks while idle is replaced; whoever needs it next sees the error.
  pool.on("error", () => undefined);
  return { client: pool, where, close: () => pool.end() };
}

async function openPglite(url: string, cwd: string): Promise<OpenClient> {
  const folder = url.slice("pglite:".length).replace(/^\/\/(?=.)/, "");
  if (folder === "") throw new UsageError("pglite: needs a folder, as in pglite:./data");
  const { PGlite } = await importPglite(cwd);
  const db = new PGlite(folder);
  return { client: db, where: `PGlite in ${folder}`, close: () => db.close() };
}

function describeUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "postgres:" && url.protocol !== "postgresql:")) {
    const shown = text.replace(/:\/\/[^@/]*@/, "://…@");
    throw new UsageError(
      `"${shown}" is no database URL. Use postgres://user:password@host:5432/database, mongodb://host:27017/database or pglite:FOLDER`,
    );
  }
  return `${url.hostname || "localhost"}:${url.port || "5432"}${url.pathname}`;
}
