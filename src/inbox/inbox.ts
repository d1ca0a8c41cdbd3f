import { publishByKey } from "../core/by-key.ts";
import { handlerSlots } from "../core/publish-slots.ts";
import { operation } from "../core/channels.ts";
import { systemClock } from "../core/clock.ts";
import type {
  HandleResult,
  History,
  Ledger,
  Migrator,
  Publisher,
  PublishResult,
  ReceiptFilter,
  ReceiptScope,
  Store,
  Subscriber,
  Writer,
} from "../core/contracts.ts";
import { describeError, errorCode, TxboxError } from "../core/errors.ts";
import type { Handled, HandleOperation } from "../core/events.ts";
import { contractsOf, type Events } from "../core/event-map.ts";
import type { AnyEvents, EventMap, HandledPayload, IncomingMessage } from "../core/message.ts";
import { rejectUnknownOptions, requireInteger, requireName, requireRuntime } from "../core/options.ts";
import { SampleRecorder } from "../core/sample-recorder.ts";
import { settledWithin } from "../core/settled-within.ts";
import type { SqlTransaction } from "../core/sql-transaction.ts";
import { uuidv7 } from "../core/uuid.ts";
import { valueKind } from "../core/value-kind.ts";
import { HandlerRegistry, type AnyHandler, type HandlerFunction, type UnknownTypes } from "./handler-registry.ts";
import { requireIncoming, typeOf } from "./incoming-message.ts";
import { MessageProcessor, type Attempt } from "./process-message.ts";
import { requireScope } from "./receipt-scope.ts";
import { fromStored } from "./stored-message.ts";

export interface InboxOptions<Map extends EventMap, Tx> {
  store: InboxStore<Tx>;
  /** Names the receipts: each consumer handles each message once. */
  consumer: string;
  /** Types messages and handlers without naming the transaction type; with schemas, payloads are checked. See `defineEvents`. */
  events?: Events<Map>;
  /** "inline": handle, then acknowledge. "stored": store in the own log, acknowledge, let a local relay handle it. */
  mode?: "inline" | "stored";
  /**
   * "consumer" (default): an id counts once, wherever it comes from. "source": once for each topic, stream or exchange, so
   * that a producer of one cannot use up ids of another. Fixed for good when the consumer first starts.
   */
  receiptScope?: ReceiptScope;
  /** Default 30 s. */
  handlerTimeoutMs?: number;
  /** Reject a message to the broker after this many failed attempts. Default: leave it to the broker or the relay. */
  maxAttempts?: number;
  /** Types without a handler: acknowledge and forget them, without a receipt (default), or reject them. */
  unknownTypes?: UnknownTypes;
  /** Answers for duplicates without the database; the ledger decides on all others. See `createRedisReceiptFilter`. */
  filter?: ReceiptFilter;
}

const handleOperation = operation<HandleOperation>("inbox", "handle");

/** The roles of a store that an inbox needs. */
export interface InboxStore<Tx> {
  readonly ledger: Ledger<Tx>;
  readonly writer: Writer<never>;
  readonly classify: Store["classify"];
  readonly migrator?: Migrator;
  readonly history?: History;
}

/** Makes each message take effect once: its receipt and the handler's changes are one transaction. */
export interface Inbox<Map extends EventMap, Tx> extends AsyncDisposable {
  on<Type extends keyof Map & string>(
    type: Type,
    handler: HandlerFunction<Tx, Type, HandledPayload<Map[Type]>>,
  ): Inbox<Map, Tx>;
  /** Handles one message now, by the handler of its type or the one given; throws what that threw. */
  handle(message: IncomingMessage, handler?: AnyHandler<Tx, Map>): Promise<Handled>;
  /** Takes messages from a broker; each is acknowledged after its commit. */
  start(subscriber: Subscriber): Promise<void>;
  /** Stops taking messages and waits for those in hand. */
  stop(): Promise<void>;
  /** Mode "stored": the publisher of a relay over the own store with `streams: ["inbox.<consumer>"]`. */
  storedPublisher(options?: { concurrency?: number }): Publisher;
}

export function createInbox<Map extends EventMap = AnyEvents, Tx = SqlTransaction>(
  options: InboxOptions<Map, Tx>,
): Inbox<Map, Tx> {
  checkOptions(options);
  const {
    store,
    consumer,
    mode = "inline",
    receiptScope = "consumer",
    handlerTimeoutMs = 30_000,
    maxAttempts,
    unknownTypes = "skip",
    filter,
  } = options;
  const contracts = contractsOf("createInbox", options.events);
  const registry = new HandlerRegistry<Tx>(unknownTypes, contracts);
  const processing = { store, consumer, receiptScope, handlerTimeoutMs, contracts };
  const inline = new MessageProcessor({ ...processing, maxAttempts, filter });
  // The relay that handles what was stored counts attempts by itself.
  const local = new MessageProcessor({ ...processing, maxAttempts: undefined });
  let scopeKept: Promise<void> | undefined;
  const subscribers = new Set<Subscriber>();
  const recorder = new SampleRecorder(store.history, { consumer }, `${consumer}-${process.pid}-${uuidv7()}`);

  /** Asked once; again after a database that was away. */
  function requireOwnScope(): Promise<void> {
    scopeKept ??= requireScope(store.ledger as Ledger<never>, consumer, receiptScope).catch((error: unknown) => {
      scopeKept = undefined;
      throw error;
    });
    return scopeKept;
  }

  async function attempt(
    message: IncomingMessage,
    signal: AbortSignal,
    how: HandleOperation["how"],
    given?: HandlerFunction<Tx>,
  ): Promise<Attempt> {
    if (!handleOperation.isHeard) return recorded(await handleNow(message, signal, how, given));
    const told: HandleOperation = { consumer, how, message };
    return handleOperation.run(told, async () => {
      const result = recorded(await handleNow(message, signal, how, given));
      told.result = result.status === "done" ? result.handled : result.status;
      if (result.status !== "done") told.error = result.error;
      return result;
    });
  }

  function recorded(result: Attempt): Attempt {
    if (result.status !== "done") {
      recorder.count(result.status);
      recorder.error(describeError(result.error));
    } else if (result.handled === "processed" || result.handled === "duplicate") recorder.count(result.handled);
    return result;
  }

  async function handleNow(
    message: IncomingMessage,
    signal: AbortSignal,
    how: HandleOperation["how"],
    given: HandlerFunction<Tx> | undefined,
  ): Promise<Attempt> {
    let handler = given;
    try {
      handler ??= registry.find(typeOf(message));
    } catch (error) {
      return inline.reject(message, error);
    }
    if (handler === undefined) return { status: "done", handled: "skipped" };
    try {
      // Before the first receipt is written it must be known how this consumer counts.
      if (receiptScope === "source") await requireOwnScope();
    } catch (error) {
      return { status: "unavailable", error };
    }
    if (how === "store") return inline.store(message);
    return how === "stored"
      ? local.process(fromStored(message), handler, signal)
      : inline.process(message, handler, signal);
  }

  /** A message that goes wrong must not harm the others of its batch. */
  const safely = (message: IncomingMessage, signal: AbortSignal, how: HandleOperation["how"]): Promise<Attempt> =>
    attempt(message, signal, how).catch((error: unknown) => ({ status: "failed", error }));
  const arrival = mode === "stored" ? "store" : "inline";

  const inbox: Inbox<Map, Tx> = {
    on(type, handler) {
      registry.add(type, handler);
      return inbox;
    },
    async handle(message, handler) {
      requireIncoming(message);
      const never = new AbortController().signal;
      const result =
        handler === undefined
          ? await attempt(message, never, arrival)
          : await attempt(message, never, "inline", handler);
      if (result.status === "done") return result.handled;
      throw result.error;
    },
    async start(subscriber) {
      requireSubscriber(subscriber);
      if (registry.types.length === 0) throw noHandlers(consumer);
      await saidNow(store.migrator?.check(), store);
      await saidNow(requireOwnScope(), store);
      await subscriber.start(consumer, (message, signal): Promise<HandleResult> => safely(message, signal, arrival));
      subscribers.add(subscriber);
    },
    async stop() {
      const all = [...subscribers];
      subscribers.clear();
      await Promise.all(all.map((subscriber) => subscriber.stop()));
      await settledWithin(recorder.flush(), FLUSH_MS);
    },
    storedPublisher({ concurrency = 10 } = {}) {
      requireInteger("storedPublisher", "concurrency", concurrency, 1, 10_000);
      const slots = handlerSlots(concurrency);
      return {
        keepsKeyOrder: true,
        publish: (messages, signal, progress) =>
          publishByKey(messages, async (message) => publishResult(await safely(message, signal, "stored")), {
            concurrency,
            signal,
            progress,
            slots,
          }),
      };
    },
    [Symbol.asyncDispose]: () => inbox.stop(),
  };
  return inbox;
}

const CHECK_MS = 5000;
/** A stop waits no longer for its last sample. */
const FLUSH_MS = 1000;

/**
 * An error that waiting cannot mend is thrown at once. A database that is away at the moment is no reason not to start.
 */
async function saidNow(check: Promise<void> | undefined, store: Pick<Store, "classify">): Promise<void> {
  const over = new AbortController();
  try {
    await Promise.race([check, systemClock.sleep(CHECK_MS, over.signal)]);
  } catch (error) {
    const code = errorCode(error) ?? "";
    if (code.startsWith("schema_") || code === "invalid_option" || store.classify(error) === "configuration")
      throw error;
  } finally {
    over.abort();
  }
}

function publishResult(attempt: Attempt): PublishResult {
  return attempt.status === "done" ? { status: "published" } : attempt;
}

const OPTIONS: readonly (keyof InboxOptions<EventMap, unknown>)[] = [
  "store",
  "consumer",
  "events",
  "mode",
  "receiptScope",
  "handlerTimeoutMs",
  "maxAttempts",
  "unknownTypes",
  "filter",
];

function checkOptions<Map extends EventMap, Tx>(options: InboxOptions<Map, Tx>): void {
  const of = "createInbox";
  requireRuntime(of);
  const {
    store,
    consumer,
    mode = "inline",
    receiptScope = "consumer",
    handlerTimeoutMs = 1,
    maxAttempts = 1,
    unknownTypes = "skip",
    filter,
  } = options ?? {};
  if (typeof store?.ledger?.receive !== "function") {
    throw invalid("store", `${of} needs a store`, "Pass { store: createPostgresStore({ client: pool }), consumer }");
  }
  rejectUnknownOptions(of, options, OPTIONS);
  requireName(of, "consumer", consumer);
  requireInteger(of, "handlerTimeoutMs", handlerTimeoutMs, 1, 2 ** 31 - 1);
  requireInteger(of, "maxAttempts", maxAttempts, 1);
  if (mode !== "inline" && mode !== "stored")
    throw invalid("mode", `${of}: there is no mode ${String(mode)}`, 'Use "inline" or "stored"');
  if (receiptScope !== "consumer" && receiptScope !== "source") {
    throw invalid(
      "receiptScope",
      `${of}: receiptScope cannot be ${String(receiptScope)}`,
      'Use "consumer" or "source"',
    );
  }
  if (filter !== undefined && (typeof filter?.seen !== "function" || typeof filter.remember !== "function")) {
    throw invalid("filter", `${of}: filter must be a receipt filter`, "Pass createRedisReceiptFilter({ client })");
  }
  if (unknownTypes !== "skip" && unknownTypes !== "reject") {
    throw invalid("unknownTypes", `${of}: unknownTypes cannot be ${String(unknownTypes)}`, 'Use "skip" or "reject"');
  }
}

function invalid(field: string, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", message, { field, fix });
}

/** A relay has `start` and `stop` as well, so the types let it through. */
function requireSubscriber(subscriber: object | undefined): void {
  const has = (name: string): boolean =>
    typeof (subscriber as Record<string, unknown> | undefined)?.[name] === "function";
  if (has("start") && has("stop") && !has("drainOnce")) return;
  const got = has("drainOnce") ? "a relay" : has("publish") ? "a publisher" : valueKind(subscriber);
  throw invalid(
    "subscriber",
    `inbox.start needs a subscriber, got ${got}`,
    "Pass one, such as createInProcessBus(), or createRedisSubscriber({ client, streams }) of a broker",
  );
}

function noHandlers(consumer: string): TxboxError {
  return invalid(
    "handler",
    `The inbox of ${consumer} has no handlers, so it would skip every message`,
    "Call inbox.on(type, handler) before inbox.start()",
  );
}
