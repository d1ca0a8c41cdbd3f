import { existsSync } from "node:fs";
import { basename, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { errorCode, TxboxError } from "../core/errors.ts";
import { contractsOf } from "../core/event-map.ts";
import { rejectUnknownOptions } from "../core/options.ts";
import { valueKind } from "../core/value-kind.ts";
import { formatMs } from "./format-values.ts";
import type { DatabaseConfig, ReconcilerConfig, RelayConfig, TxboxConfig } from "../config/define-config.ts";
import { UsageError } from "./usage-error.ts";
import { LATE, within } from "./within.ts";

const FILES = ["txbox.config.ts", "txbox.config.mts", "txbox.config.js", "txbox.config.mjs"];

/** Complete by construction: a new option that is missing here does not compile. */
const CONFIG_KEYS = keysOf<TxboxConfig>({
  database: true,
  store: true,
  stores: true,
  relays: true,
  reconcilers: true,
  events: true,
  close: true,
});
const DATABASE_KEYS = keysOf<DatabaseConfig>({
  url: true,
  schema: true,
  tablePrefix: true,
  segmentMs: true,
  retentionMs: true,
  abandonAfterMs: true,
  receiptRetentionMs: true,
  archive: true,
  replication: true,
  collection: true,
  inboxCollection: true,
  transactions: true,
});
const RELAY_KEYS = keysOf<RelayConfig>({
  publisher: true,
  deadLetters: true,
  batchSize: true,
  batchBytes: true,
  streams: true,
  unordered: true,
  source: true,
  start: true,
  maxAttempts: true,
  backoff: true,
  onDead: true,
  maxParked: true,
  leaseMs: true,
  maxPollMs: true,
  maintenance: true,
  onEvent: true,
});

const RECONCILER_KEYS = keysOf<ReconcilerConfig>({ find: true, toMessage: true, events: true, batchSize: true });

export interface LoadedConfig {
  readonly config: TxboxConfig;
  /** Undefined when there is no file. */
  readonly file: string | undefined;
}

/** The configuration file named, or the one in the folder, or an empty configuration. */
export async function loadConfig(cwd: string, named: string | undefined, deadlineMs: number): Promise<LoadedConfig> {
  const file = named === undefined ? FILES.map((name) => resolve(cwd, name)).find(existsSync) : resolve(cwd, named);
  if (file === undefined) return { config: {}, file: undefined };
  if (!existsSync(file)) throw new UsageError(`There is no configuration file ${named ?? file}`);
  const name = basename(file);
  const module = await loadModule(file, deadlineMs);
  const config = "default" in module ? module.default : undefined;
  if (!isObject(config))
    throw new UsageError(
      `${name} has no default export that is an object, got ${valueKind(config)}. Write \`export default defineConfig({ … })\``,
    );
  check(name, config);
  return { config, file };
}

/** What a file of the user exports. */
export async function loadModule(file: string, deadlineMs: number): Promise<object> {
  const name = basename(file);
  let module: object | typeof LATE;
  try {
    module = await within(deadlineMs, import(pathToFileURL(file).href) as Promise<object>);
  } catch (error) {
    const fix = fixOf(error);
    throw new UsageError(`${name} cannot be loaded: ${reasonOf(error)}${fix === undefined ? "" : `. ${fix}`}`, {
      cause: error,
    });
  }
  if (module === LATE)
    throw new UsageError(`${name} was not loaded within ${formatMs(deadlineMs)}: it awaits something that never comes`);
  return module;
}

function check(name: string, config: Record<string, unknown>): asserts config is TxboxConfig & Record<string, unknown> {
  try {
    rejectUnknownOptions(name, config, CONFIG_KEYS);
    const { database, store, relays, close } = config;
    if (database !== undefined) checkDatabase(name, "database", database);
    if (database !== undefined && store !== undefined)
      fail(`${name} has both "store" and "database". Keep one of them`);
    if (store !== undefined && !isObject(store) && typeof store !== "function")
      fail(`${name}: store must be a store or a function, got ${valueKind(store)}`);
    if (close !== undefined && typeof close !== "function")
      fail(`${name}: close must be a function, got ${valueKind(close)}`);
    for (const [other, options] of Object.entries(objectAt(name, "stores", config["stores"] ?? {}))) {
      if (typeof options === "function" || (isObject(options) && "admin" in options)) continue;
      checkDatabase(name, `stores.${other}`, options);
      if (!isObject(options) || options["url"] === undefined) fail(`${name}: stores.${other} needs a url`);
    }
    for (const [relay, options] of Object.entries(objectAt(name, "relays", relays ?? {}))) {
      const at = `relays.${relay}`;
      const { publisher } = objectAt(name, at, options);
      rejectUnknownOptions(`${name}: ${at}`, options as object, RELAY_KEYS);
      if (!isObject(publisher) && typeof publisher !== "function")
        fail(`${name}: ${at}.publisher must be a publisher or a function that makes one, got ${valueKind(publisher)}`);
    }
    for (const [reconciler, options] of Object.entries(objectAt(name, "reconcilers", config["reconcilers"] ?? {}))) {
      const at = `reconcilers.${reconciler}`;
      const { find, toMessage } = objectAt(name, at, options);
      rejectUnknownOptions(`${name}: ${at}`, options as object, RECONCILER_KEYS);
      if (typeof find !== "function" || typeof toMessage !== "function")
        fail(`${name}: ${at} needs the functions find and toMessage`);
    }
    contractsOf(name, config["events"]);
  } catch (error) {
    if (error instanceof TxboxError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

function checkDatabase(name: string, at: string, database: unknown): void {
  const options = objectAt(name, at, database);
  rejectUnknownOptions(`${name}: ${at}`, options, DATABASE_KEYS);
  for (const key of ["url", "schema", "tablePrefix"] as const) textAt(name, `${at}.${key}`, options[key]);
}

function objectAt(name: string, at: string, value: unknown): Record<string, unknown> {
  return isObject(value) ? value : fail(`${name}: ${at} must be an object, got ${valueKind(value)}`);
}

function textAt(name: string, key: string, value: unknown): void {
  if (value !== undefined && typeof value !== "string")
    fail(`${name}: ${key} must be a string, got ${valueKind(value)}`);
}

function fail(message: string): never {
  throw new UsageError(message);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? (error.message.split("\n", 1)[0] ?? "") : String(error);
}

/** Node runs TypeScript without a compiler, which is stricter than what the application may be used to. */
function fixOf(error: unknown): string | undefined {
  const tsx = 'or set NODE_OPTIONS="--import tsx"';
  switch (errorCode(error)) {
    case "ERR_MODULE_NOT_FOUND":
    case "ERR_UNSUPPORTED_DIR_IMPORT":
      // A package is to be installed; a file or an alias has to be written as Node wants it.
      return /package '[^@~]|package '@[^/]/.test(reasonOf(error))
        ? undefined
        : `Node runs it as it is: write imports as paths with their ending, such as "./events.ts", ${tsx}`;
    case "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX":
      return `Node runs it as it is: leave out what is not erasable, such as enums and decorators, ${tsx}`;
    default:
      return undefined;
  }
}

function keysOf<T extends object>(keys: Readonly<Record<keyof T, true>>): readonly string[] {
  return Object.keys(keys);
}
