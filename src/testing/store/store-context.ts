import type { Clock, Store } from "../../core/contracts.ts";
import type { ConformanceCase } from "../conformance.ts";

/** What a store may lack. */
export type StoreFeature =
  /** Transactions run side by side; a store with one connection has none of that. */
  | "concurrency"
  /** Several processes share the lanes of a relay: `capabilities.sharedRelays`. */
  | "sharing"
  /** Part of a transaction can be undone: `undo` is there. */
  | "savepoints"
  /** Relays read one log, each at its own pace, and can be rewound: `capabilities.namedRelays`. */
  | "log"
  /** The log is kept in segments that are dropped whole: `withRetention` is there. */
  | "retention"
  /** What is settled is in the store when `settle` resolves. Without it, a moment later: until then it may come again. */
  | "promptProgress"
  /** A restored copy is recognised: `restore` is there. */
  | "restore"
  /** The ways in which a handler could end its transaction are known: `endings` and `breakTransaction` are there. */
  | "endings"
  /** No two transactions have the same `tx`. Without it, the connection itself is what is passed. */
  | "ownHandles";

/** The transaction of any driver; the cases only pass it on. */
export type AnyTx = object;

export interface AnotherOptions {
  clock?: Clock;
}

export interface Retention {
  segmentMs: number;
  retentionMs: number;
  abandonAfterMs?: number;
}

export interface RestoredCopy {
  readonly store: Store<AnyTx>;
  transaction<T>(run: (tx: AnyTx) => Promise<T>): Promise<T>;
  /** The store's own way to make the copy usable. */
  rebase(): Promise<unknown>;
}

/** An application that has one connection, where the database has such a thing, and shares it with no other case. */
export interface SoleClient extends Pick<StoreContext, "store" | "transaction">, AsyncDisposable {}

/** What one case works with: a store over empty, migrated tables that no other case sees. */
export interface StoreContext {
  readonly store: Store<AnyTx>;
  /** Another store over the same tables, as another process has it: through a client of its own where there can be one. */
  another(options?: AnotherOptions): Store<AnyTx>;
  /** The application's own transaction on the driver: commits when `run` resolves, rolls back when it throws. */
  transaction<T>(run: (tx: AnyTx) => Promise<T>): Promise<T>;
  /** Writes to a table of the application's own, in its transaction. */
  note(tx: AnyTx, text: string): Promise<void>;
  /** What transactions have noted and committed. */
  notes(): Promise<string[]>;
  /** Makes the schema look `missing`, `older` or `newer` to the migrator. */
  spoilSchema(state: "missing" | "older" | "newer"): Promise<void>;
  /**
   * A store over the same tables through such a client, with transactions as the driver or the library opens them. Without it
   * the cases use `store` and `transaction`.
   */
  soleClient?(): Promise<SoleClient>;
  /** Feature "savepoints": runs and undoes what was run, and only that. */
  undo?(tx: AnyTx, run: () => Promise<unknown>): Promise<void>;
  /** Feature "endings": by name, what a handler could call to end its transaction or its session. */
  readonly endings?: Readonly<Record<string, (tx: AnyTx) => Promise<unknown>>>;
  /** Feature "endings": a statement that the database refuses, and after which it commits nothing of the transaction. */
  breakTransaction?(tx: AnyTx): Promise<unknown>;
  /** Feature "retention": a store over the same tables that rotates and drops its log this fast. */
  withRetention?(retention: Retention): Store<AnyTx>;
  /** Feature "restore": all rows as they are now, in other tables, as a dump and restore to another server leaves them. */
  restore?(): Promise<RestoredCopy>;
}

export type StoreCase = ConformanceCase<StoreContext, StoreFeature>;
