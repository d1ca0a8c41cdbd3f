import type { Store } from "../core/contracts.ts";
import type { PostgresClient } from "../stores/postgres/postgres-client.ts";
import { createMongoStore } from "../stores/mongodb/mongodb-store.ts";
import {
  createPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from "../stores/postgres/postgres-store.ts";
import { configCall, messageOf } from "./config-call.ts";
import { type DatabaseUrl, parseDatabaseUrl } from "./database-url.ts";
import type { TxboxConfig } from "../config/define-config.ts";
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
  /** What errors call the store; default "the configuration". */
  readonly named?: string;
  /** With where it comes from, such as `--database-url`. */
  readonly url: { readonly text: string; readonly from: string } | undefined;
  readonly schema: string | undefined;
  readonly tablePrefix: string | undefined;
  /** PGHOST or PGDATABASE are set: node-postgres reads them by itself. */
  readonly fromPgEnvironment: boolean;
  readonly cwd: string;
  readonly configDeadlineMs: number;
  /** Told every URL before it is used. */
  readonly hide: (url: string) => void;
}

/** The store of the configuration, or one on a connection of its own. */
export async function openStore(settings: StoreSettings): Promise<OpenStore> {
  const { config, cwd, fromPgEnvironment } = settings;
  if (settings.url === undefined && config.store !== undefined) {
    const { named = "the configuration" } = settings;
    const make = config.store;
    const store =
      typeof make === "function" ? await configCall(`store() of ${named}`, settings.configDeadlineMs, make) : make;
    if (typeof store?.admin?.relays !== "function") throw new UsageError(`The store of ${named} is not a txbox store`);
    return { store, where: `the store of ${named}`, close: async () => undefined };
  }
  const inConfig = config.database?.url;
  const given = settings.url ?? (inConfig === undefined ? undefined : { text: inConfig, from: "database.url" });
  if (given === undefined && !fromPgEnvironment) {
    throw new UsageError(
      "Which database? Give --database-url, set TXBOX_DATABASE_URL or DATABASE_URL, or write txbox.config.ts",
    );
  }
  if (given !== undefined) settings.hide(given.text);
  const url = given === undefined ? undefined : parseDatabaseUrl(given.text, given.from);
  const from = given?.from ?? "PGHOST";
  if (url?.kind === "mongodb") return openMongo(url, from, settings);
  const where = url?.where ?? "the server of PGHOST and PGDATABASE";
  const { client, close } = url?.kind === "pglite" ? await openPglite(url, cwd) : await openPg(url, from, cwd);
  const options = postgresOptions(config);
  const { schema = options.schema, tablePrefix = options.tablePrefix } = settings;
  const names = { ...(schema === undefined ? {} : { schema }), ...(tablePrefix === undefined ? {} : { tablePrefix }) };
  return { store: createPostgresStore({ ...options, ...names, client }), where, close };
}

function postgresOptions({ database = {} }: TxboxConfig): Omit<PostgresStoreOptions, "client"> {
  const { schema, tablePrefix, segmentMs, retentionMs, abandonAfterMs, receiptRetentionMs, archive } = database;
  return given({ schema, tablePrefix, segmentMs, retentionMs, abandonAfterMs, receiptRetentionMs, archive });
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
  readonly close: () => Promise<void>;
}

const CONNECT_TIMEOUT_MS = 10_000;

async function openMongo(url: DatabaseUrl, from: string, { config, cwd }: StoreSettings): Promise<OpenStore> {
  const { MongoClient } = await importMongo(cwd);
  const client = made(
    from,
    () => new MongoClient(url.text, { appName: "txbox", serverSelectionTimeoutMS: CONNECT_TIMEOUT_MS }),
  );
  const { collection, inboxCollection, transactions, retentionMs, receiptRetentionMs, archive } = config.database ?? {};
  const options = given({
    collection,
    inboxCollection,
    transactions,
    retentionMs,
    receiptRetentionMs,
    archive,
  });
  return { store: createMongoStore({ client, ...options }), where: url.where, close: () => client.close() };
}

async function openPg(url: DatabaseUrl | undefined, from: string, cwd: string): Promise<OpenClient> {
  const { default: pg } = await importPg(cwd);
  const options = {
    ...(url === undefined ? {} : { connectionString: url.text }),
    application_name: "txbox",
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  };
  // The pool parses the URL only when it connects, and its errors would look like errors of the server.
  made(from, () => new pg.Client(options));
  const pool = new pg.Pool(options);
  // A connection that breaks while idle is replaced; the next query that needs one sees the error.
  pool.on("error", () => undefined);
  return { client: pool, close: () => pool.end() };
}

async function openPglite({ text }: DatabaseUrl, cwd: string): Promise<OpenClient> {
  const { PGlite } = await importPglite(cwd);
  const db = new PGlite(text);
  return { client: db, close: () => db.close() };
}

/** What a driver says against a URL is an error of usage. */
function made<T>(from: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new UsageError(`${from} is no database URL that its driver takes: ${messageOf(error)}`, { cause: error });
  }
}
