import type { Publisher, Store } from "../core/contracts.ts";
import type { Events } from "../core/event-map.ts";
import type { EventMap } from "../core/message.ts";
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
  /** A publisher, or a function that is called only when this relay runs. */
  publisher: Publisher | (() => Publisher | Promise<Publisher>);
  /** What becomes dead is sent here as well. */
  deadLetters?: Publisher | (() => Publisher | Promise<Publisher>);
}

/** A reconciler that `txbox reconcile` runs. */
// oxlint-disable-next-line typescript/no-explicit-any -- the head is whatever its own query gives
export type ReconcilerConfig = Omit<ReconcilerOptions<any>, "store" | "everyMs" | "onEvent" | "clock">;

/** A store besides the own one: where it is, or a store with a client of your own, or a function that makes it. */
export type StoreConfig = DatabaseConfig | Store | (() => Store | Promise<Store>);

/** What `txbox.config.ts` may say. Everything in it is optional; an unknown key is an error. */
export interface TxboxConfig {
  /** Where the tables are; the command opens the connection by itself. */
  database?: DatabaseConfig;
  /** Instead of `database`: a store with a client of your own. */
  store?: Store | (() => Store | Promise<Store>);
  /** Other stores by name, for `txbox audit --to NAME`. */
  stores?: Readonly<Record<string, StoreConfig>>;
  /** What `txbox relay NAME` runs, by name. */
  relays?: Readonly<Record<string, RelayConfig>>;
  /** What `txbox reconcile` runs, by name. */
  reconcilers?: Readonly<Record<string, ReconcilerConfig>>;
  /** What `txbox contracts export` writes down; an edit of a dead letter has to fit it. */
  events?: Events<EventMap>;
  /** Ends what this file opened; called when the command is done. */
  close?: () => Promise<void> | void;
}

/** For `export default` in txbox.config.ts: completion and types, nothing at run time. */
export function defineConfig(config: TxboxConfig): TxboxConfig {
  return config;
}
