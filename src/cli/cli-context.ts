import { describeError } from "../core/errors.ts";
import { loadConfig, type LoadedConfig } from "./load-config.ts";
import { openStore, type OpenStore } from "./open-store.ts";
import { secretsOf } from "./database-url.ts";
import type { TxboxConfig } from "../config/index.ts";
import type { Output } from "./output.ts";
import { suggestion } from "./parse-flags.ts";
import { UsageError } from "./usage-error.ts";
import { LATE, within } from "./within.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface GlobalValues {
  readonly config?: string;
  readonly store?: string;
  readonly "database-url"?: string;
  readonly schema?: string;
  readonly "table-prefix"?: string;
}

/** What the page calls the store that is not one of `stores`. */
export const OWN_STORE = "main";
/** For loading the configuration, and for each of its functions that makes something. */
const CONFIG_DEADLINE_MS = 60_000;
/** For closing connections and the configuration, when everything is done. */
const CLOSE_MS = 5000;

export interface CliContextOptions {
  readonly output: Output;
  readonly cwd: string;
  readonly env: Environment;
  readonly globals: GlobalValues;
  readonly configDeadlineMs?: number | undefined;
}

/** What a command may use. Configuration and connection are made when they are first asked for, and ended for it. */
export class CliContext implements AsyncDisposable {
  readonly output: Output;
  readonly cwd: string;
  readonly configDeadlineMs: number;
  readonly #globals: GlobalValues;
  readonly #env: Environment;
  #loaded: Promise<LoadedConfig> | undefined;
  #opened: Promise<OpenStore> | undefined;
  readonly #others: Promise<OpenStore>[] = [];
  readonly #contexts: CliContext[] = [];
  /** Where the store is that could not be used, when it is not the own one. */
  #failed: string | undefined;

  constructor(options: CliContextOptions) {
    this.output = options.output;
    this.cwd = options.cwd;
    this.#globals = options.globals;
    this.#env = options.env;
    this.configDeadlineMs = options.configDeadlineMs ?? CONFIG_DEADLINE_MS;
    this.output.secrets.add(this.#setting("PGPASSWORD"));
    for (const { text } of this.#urls()) this.#hide(text);
  }

  loadConfig(): Promise<LoadedConfig> {
    this.#loaded ??= loadConfig(this.cwd, this.#globals.config ?? this.#setting("TXBOX_CONFIG"), this.configDeadlineMs);
    return this.#loaded;
  }

  /** `--schema`, then TXBOX_SCHEMA, then the configuration; the same for the prefix. */
  async names(): Promise<{ schema: string; tablePrefix: string }> {
    const { config } = await this.loadConfig();
    const chosen = this.#chosen(config);
    if (chosen !== undefined) {
      const named = config.stores?.[chosen];
      const { schema = "txbox", tablePrefix = "" } = typeof named === "object" && !("admin" in named) ? named : {};
      return { schema, tablePrefix };
    }
    const { database } = config;
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

  /** Another store, by its URL or its name in the configuration, after the same check; undefined: the own one. */
  async openOther(which: string | undefined, flag: string): Promise<OpenStore> {
    if (which === undefined || (which === OWN_STORE && (await this.#ownIsMain()))) return this.open();
    const opening = this.#openOther(which, flag);
    this.#others.push(opening);
    const opened = await opening;
    try {
      await opened.store.migrator.check();
    } catch (error) {
      this.#failed = opened.where;
      throw error;
    }
    return opened;
  }

  /** What the own store is called beside the `stores` of the configuration. */
  async ownName(): Promise<string> {
    return (await this.#ownIsMain()) ? OWN_STORE : "own";
  }

  async #ownIsMain(): Promise<boolean> {
    const { config } = await this.loadConfig();
    return this.#chosen(config) === undefined && !Object.hasOwn(config.stores ?? {}, OWN_STORE);
  }

  /** Whether it is said anywhere which store is the own one. */
  async hasOwn(): Promise<boolean> {
    const { config } = await this.loadConfig();
    if (this.#chosen(config) !== undefined) return true;
    const isConfigured = config.store !== undefined || config.database?.url !== undefined;
    return isConfigured || this.#urls().length > 0 || this.#fromPgEnvironment();
  }

  /** The own store of another configuration, after the same check: that file alone says where it is. */
  async openConfig(config: string): Promise<OpenStore> {
    const { output, cwd, configDeadlineMs } = this;
    const context = new CliContext({ output, cwd, env: {}, globals: { config }, configDeadlineMs });
    this.#contexts.push(context);
    return context.open();
  }

  /** Where the store is, for messages about one that could not be reached. */
  async where(): Promise<string | undefined> {
    return this.#failed ?? (await this.#opened?.catch(() => undefined))?.where;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closing = [
      ...this.#contexts.map((context) => context[Symbol.asyncDispose]()),
      ...[this.#opened, ...this.#others].map((opened) =>
        this.#closing("The connection", async () => (await opened?.catch(() => undefined))?.close()),
      ),
      this.#closing("close() of the configuration", async () => {
        const loaded = await this.#loaded?.catch(() => undefined);
        await loaded?.config.close?.();
      }),
    ];
    await Promise.all(closing);
  }

  /** A server that hangs must not keep the process. */
  async #closing(what: string, close: () => Promise<unknown>): Promise<void> {
    try {
      const ended = await within(CLOSE_MS, close());
      if (ended === LATE) this.output.note(`${what} did not end within ${CLOSE_MS} ms and is left behind`);
    } catch (error) {
      this.output.note(`${what} did not end well: ${describeError(error)}`);
    }
  }

  /** The name that `--store` gives; undefined: the own one. */
  #chosen({ stores = {} }: TxboxConfig): string | undefined {
    const { store, "database-url": url } = this.#globals;
    if (store === undefined || (store === OWN_STORE && !Object.hasOwn(stores, store))) return undefined;
    if (url !== undefined) throw new UsageError("--store and --database-url both say which database. Give one of them");
    return store;
  }

  async #open(): Promise<OpenStore> {
    const { config } = await this.loadConfig();
    const chosen = this.#chosen(config);
    if (chosen !== undefined) return this.#openOther(chosen, "--store");
    // Many tools use DATABASE_URL: a store that the configuration built comes first.
    const url = this.#urls().find(({ from }) => config.store === undefined || from !== "DATABASE_URL");
    const fromPgEnvironment = this.#fromPgEnvironment();
    return openStore({
      config,
      url,
      ...(await this.names()),
      fromPgEnvironment,
      cwd: this.cwd,
      configDeadlineMs: this.configDeadlineMs,
      hide: (text) => this.#hide(text),
    });
  }

  async #openOther(which: string, flag: string): Promise<OpenStore> {
    const { config } = await this.loadConfig();
    const isUrl = /^[a-z][a-z0-9+.-]*:/i.test(which);
    if (isUrl) this.#hide(which);
    const named = isUrl ? undefined : config.stores?.[which];
    const known = Object.keys(config.stores ?? {});
    if (!isUrl && (named === undefined || !known.includes(which))) {
      const hint = known.length === 0 ? "The configuration has no stores" : suggestion(which, [OWN_STORE, ...known]);
      // What is no name may hold a password.
      const shown = /^[\w.-]{1,100}$/.test(which) ? `"${which}"` : "its value";
      throw new UsageError(`${flag}: ${shown} is neither a database URL nor a name of \`stores\`. ${hint}`);
    }
    const isStore = typeof named === "function" || (named !== undefined && "admin" in named);
    return openStore({
      config: isStore ? { store: named } : { database: named ?? config.database ?? {} },
      named: `stores.${which}`,
      url: isUrl ? { text: which, from: flag } : undefined,
      // A named store says where its tables are; a URL goes with the flags.
      ...(isUrl ? await this.names() : { schema: undefined, tablePrefix: undefined }),
      fromPgEnvironment: false,
      cwd: this.cwd,
      configDeadlineMs: this.configDeadlineMs,
      hide: (text) => this.#hide(text),
    });
  }

  #fromPgEnvironment(): boolean {
    return this.#setting("PGHOST") !== undefined || this.#setting("PGDATABASE") !== undefined;
  }

  /** The one that wins first. */
  #urls(): { text: string; from: string }[] {
    const urls = [
      { text: this.#globals["database-url"], from: "--database-url" },
      ...["TXBOX_DATABASE_URL", "DATABASE_URL"].map((name) => ({ text: this.#setting(name), from: name })),
    ];
    return urls.flatMap(({ text, from }) => (text === undefined ? [] : [{ text, from }]));
  }

  #hide(url: string): void {
    for (const secret of secretsOf(url)) this.output.secrets.add(secret);
  }

  #setting(name: string): string | undefined {
    const value = this.#env[name];
    return value === "" ? undefined : value;
  }
}
