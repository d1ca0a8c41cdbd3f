import { loadConfig, type LoadedConfig } from "./load-config.ts";
import { openStore, type OpenStore } from "./open-store.ts";
import type { Output } from "./output.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface GlobalValues {
  readonly config?: string;
  readonly "database-url"?: string;
  readonly schema?: string;
  readonly "table-prefix"?: string;
}

/** What a command may use. Configuration and connection are made when they are first asked for, and ended for it. */
export class CliContext implements AsyncDisposable {
  readonly output: Output;
  readonly cwd: string;
  readonly #globals: GlobalValues;
  readonly #env: Environment;
  #loaded: Promise<LoadedConfig> | undefined;
  #opened: Promise<OpenStore> | undefined;

  constructor(options: { output: Output; cwd: string; env: Environment; globals: GlobalValues }) {
    this.output = options.output;
    this.cwd = options.cwd;
    this.#globals = options.globals;
    this.#env = options.env;
  }

  loadConfig(): Promise<LoadedConfig> {
    this.#loaded ??= loadConfig(this.cwd, this.#globals.config ?? this.#setting("TXBOX_CONFIG"));
    return this.#loaded;
  }

  /** `--schema`, then TXBOX_SCHEMA, then the configuration; the same for the prefix. */
  async names(): Promise<{ schema: string; tablePrefix: string }> {
    const { database } = (await this.loadConfig()).config;
    return {
      schema: this.#globals.schema ?? this.#setting("TXBOX_SCHEMA") ?? database?.schema ?? "txbox",
      tablePrefix: this.#globals["table-prefix"] ?? this.#setting("TXBOX_TABLE_PREFIX") ?? database?.tablePrefix ?? "",
    };
  }

  /** The store, without a look at its schema. */
  openUnchecked(): Promise<OpenStore> {
    this.#opened ??= this.#open();
    return this.#opened;
  }

  /** The store, after a check that its schema is the one this version knows. */
  async open(): Promise<OpenStore> {
    const opened = await this.openUnchecked();
    await opened.store.migrator.check();
    return opened;
  }

  /** Where the store is, for messages about one that could not be reached. */
  async where(): Promise<string | undefined> {
    return (await this.#opened?.catch(() => undefined))?.where;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const opened = await this.#opened?.catch(() => undefined);
    await opened?.close();
    const loaded = await this.#loaded?.catch(() => undefined);
    await loaded?.config.close?.();
  }

  async #open(): Promise<OpenStore> {
    const { config } = await this.loadConfig();
    const named = this.#globals["database-url"] ?? this.#setting("TXBOX_DATABASE_URL");
    // DATABASE_URL is everybody's: a store that the configuration built is meant more.
    const url = named ?? (config.store === undefined ? this.#setting("DATABASE_URL") : undefined);
    const fromPgEnvironment = this.#setting("PGHOST") !== undefined || this.#setting("PGDATABASE") !== undefined;
    return openStore({ config, url, ...(await this.names()), fromPgEnvironment, cwd: this.cwd });
  }

  #setting(name: string): string | undefined {
    const value = this.#env[name];
    return value === "" ? undefined : value;
  }
}
