import { eventEmitter } from "../core/channels.ts";
import { systemClock } from "../core/clock.ts";
import type { Clock, Store } from "../core/contracts.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import type { Reconciled, ReconcilerEvent } from "../core/events.ts";
import type { Events } from "../core/event-map.ts";
import type { EventMap, NewMessageOf, AnyEvents } from "../core/message.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../core/options.ts";
import { createOutbox } from "./outbox.ts";
import { invalidMessage } from "./prepare-message.ts";

export interface ReconcilerOptions<Head, Map extends EventMap = AnyEvents> {
  store: Store;
  /** Heads without results: an array, or a cursor that gives one after the other. Leave out what is still under way. */
  find: (signal: AbortSignal) => Found<Head> | Promise<Found<Head>>;
  /** The message that was left out. Its `id` must follow from the head, so that it is enqueued once. */
  toMessage: (head: Head) => NewMessageOf<Map>;
  /** Types the messages; with schemas, they are checked. See `defineEvents`. */
  events?: Events<Map>;
  /** Time between two runs of `start`. Default: a minute. */
  everyMs?: number;
  /** Messages enqueued in one transaction. Default 500. */
  batchSize?: number;
  onEvent?: (event: ReconcilerEvent) => void;
  clock?: Clock;
}

export type Found<Head> = Iterable<Head> | AsyncIterable<Head>;

/** Finds what should have been enqueued and was not, and enqueues it. Any number of processes may run the same one. */
export interface Reconciler extends AsyncDisposable {
  start(): void;
  /** Waits for the run that is under way. */
  stop(): Promise<void>;
  /** One run; for cron. */
  reconcileOnce(): Promise<Reconciled>;
}

const KNOWN = ["store", "find", "toMessage", "events", "everyMs", "batchSize", "onEvent", "clock"];

export function createReconciler<Head, Map extends EventMap = AnyEvents>(
  options: ReconcilerOptions<Head, Map>,
): Reconciler {
  const of = "createReconciler";
  rejectUnknownOptions(of, options, KNOWN);
  requireFunction(of, "find", options.find, "Pass () => the heads that have no result yet");
  requireFunction(of, "toMessage", options.toMessage, "Pass (head) => message");
  const { everyMs = 60_000, batchSize = 500, clock = systemClock, onEvent } = options;
  if (onEvent !== undefined) requireFunction(of, "onEvent", onEvent, "Pass (event) => { … }");
  const emit = eventEmitter<ReconcilerEvent>("reconciler", onEvent);
  requireInteger(of, "everyMs", everyMs, 1);
  requireInteger(of, "batchSize", batchSize, 1, 10_000);
  const { store, events } = options;
  const outbox = createOutbox<AnyEvents, unknown>({
    store,
    ...(events === undefined ? {} : { events: events as Events<AnyEvents> }),
  });
  let stopping = new AbortController();
  let loop: Promise<void> | undefined;

  async function enqueue(messages: readonly NewMessageOf<Map>[], totals: Reconciled): Promise<void> {
    const all = messages as readonly NewMessageOf<AnyEvents>[];
    const enqueued = await inTransaction(options.store, (tx) => outbox.enqueue(tx, all));
    for (const { duplicate } of enqueued) {
      if (duplicate) totals.known++;
      else totals.enqueued++;
    }
  }

  async function reconcile(signal: AbortSignal): Promise<Reconciled> {
    const totals: Reconciled = { found: 0, enqueued: 0, known: 0 };
    let batch = new globalThis.Map<string, NewMessageOf<Map>>();
    for await (const head of await options.find(signal)) {
      totals.found++;
      const message = options.toMessage(head);
      batch.set(requireId(message), message);
      if (batch.size >= batchSize) {
        await enqueue([...batch.values()], totals);
        batch = new globalThis.Map();
      }
      if (signal.aborted) break;
    }
    if (batch.size > 0) await enqueue([...batch.values()], totals);
    return totals;
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const startedAt = clock.monotonic();
      try {
        const totals = await reconcile(signal);
        emit({ type: "reconciled", ...totals, ms: clock.monotonic() - startedAt });
      } catch (error) {
        emit({ type: "failed", error: describeError(error) });
      }
      await clock.sleep(everyMs, signal);
    }
  }

  async function stop(): Promise<void> {
    stopping.abort();
    await loop;
    loop = undefined;
  }

  return {
    start() {
      if (loop !== undefined) return;
      stopping = new AbortController();
      loop = run(stopping.signal);
    },
    stop,
    reconcileOnce: () => reconcile(new AbortController().signal),
    [Symbol.asyncDispose]: stop,
  };
}

function inTransaction<T>(store: Store, run: (tx: unknown) => Promise<T>): Promise<T> {
  if (store.capabilities.transactions) return store.ledger.transaction(run);
  const { withoutTransaction } = store;
  if (withoutTransaction !== undefined) return run(withoutTransaction);
  throw new TxboxError("invalid_option", `The store "${store.name}" has no transactions to reconcile in`, {
    field: "store",
  });
}

function requireId(message: { id?: string }): string {
  if (typeof message?.id === "string" && message.id !== "") return message.id;
  throw invalidMessage(
    "id",
    "toMessage gave a message without an id",
    "Make the id of the head, such as page:revision",
  );
}
