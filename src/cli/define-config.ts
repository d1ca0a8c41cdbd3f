import type { Publisher, Store } from "../core/contracts.ts";
import type { RelayOptions } from "../relay/relay-options.ts";
import type { PostgresStoreOptions } from "../stores/postgres/postgres-store.ts";

/** How `txbox` reaches the tables when it opens the connection itself. */
export interface DatabaseConfig extends Omit<PostgresStoreOptions, "client" | "clock"> {
  /** postgres://… or pglite:FOLDER. `TXBOX_DATABASE_URL`, `DATABASE_URL` and `--database-url` win over it. */
  url?: string;
}

/** A relay that `txbox relay NAME` runs: the options of createRelay, its publisher made when it is needed. */
export interface RelayConfig extends Omit<RelayOptions, "store" | "name" | "publisher" | "deadLetters" | "clock"> {
  publisher: Publisher | (() => Publisher | Promise<Publisher>);
  deadLetters?: Publisher | (() => Publisher | Promise<Publisher>);
}

export interface TxboxConfig {
  database?: DatabaseConfig;
  /** Instead of `database`: a store with a client of your own. */
  store?: Store | (() => Store | Promise<Store>);
  relays?: Readonly<Record<string, RelayConfig>>;
  /** Ends what this file opened; called when the command is done. */
  close?: () => Promise<void> | void;
}

/** For `export default` in txbox.config.ts: completion and types, nothing at run time. */
export function defineConfig(config: TxboxConfig): TxboxConfig {
  return config;
}
