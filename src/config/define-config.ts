import type { Publisher, Store } from "../core/contracts.ts";
import type { ReconcilerOptions } from "../outbox/reconciler.ts";
import type { RelayOptions } from "../relay/relay-options.ts";
import type { MongoStoreOptions } from "../stores/mongodb/mongodb-store.ts";
import type { PostgresStoreOptions } from "../stores/postgres/postgres-store.ts";

/** How `txbox` reaches the tables when it opens the connection itself; the options of the store that the URL is for. */
export interface DatabaseConfig
  extends Omit<PostgresStoreOptions, "client" | "clock">, Omit<MongoStoreOptions, "client" | "clock" | "database"> {
  /** postgres://…, mongodb://… or pglite:FOLDER. `TXBOX_DATABASE_URL`, `DATABASE_URL` and `--database-url` win over it. */
  url?: string;
}

/** A relay that `txbox relay NAME` runs: the options of createRelay, its publisher made when it is needed. */
export interface RelayConfig extends Omit<RelayOptions, "store" | "name" | "publisher" | "deadLetters" | "clock"> {
  publisher: Publisher | (() => Publisher | Promise<Publisher>);
  deadLetters?: Publisher | (() => Publisher | Promise<Publisher>);
}

/** A reconciler that `txbox reconcile` runs. */
// oxlint-disable-next-line typescript/no-explicit-any -- the head is whatever its own query gives
export type ReconcilerConfig = Omit<ReconcilerOptions<any>, "store" | "everyMs" | "onEvent" | "clock">;

export interface TxboxConfig {
  database?: DatabaseConfig;
  /** Instead of `database`: a store with a client of your own. */
  store?: Store | (() => Store | Promise<Store>);
  relays?: Readonly<Record<string, RelayConfig>>;
  reconcilers?: Readonly<Record<string, ReconcilerConfig>>;
  /** Ends what this file opened; called when the command is done. */
  close?: () => Promise<void> | void;
}

/** For `export default` in txbox.config.ts: completion and types, nothing at run time. */
export function defineConfig(config: TxboxConfig): TxboxConfig {
  return config;
}
