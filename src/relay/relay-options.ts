import { systemClock } from "../core/clock.ts";
import type { BackoffOptions } from "../core/backoff.ts";
import type { Clock, MessageSourceName, Publisher, Store } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import { rejectUnknownOptions, requireFunction, requireInteger, requireName, requireRuntime } from "../core/options.ts";
import { eventEmitter } from "../core/channels.ts";
import { shownValue } from "../core/value-kind.ts";
import type { RelayEvent } from "../core/events.ts";

/** What a dead letter does to its key: let later messages go on, or hold them until it is requeued or discarded. */
export type OnDead = "continue" | "block";

export interface RelayOptions {
  store: Store;
  /** Names the relay's progress. Processes with the same name share its work; each name gets every message. */
  name: string;
  publisher: Publisher;
  /** What becomes dead is sent here as well, with its errors in headers; see docs/relay.md. Default: it stays in the store alone. */
  deadLetters?: Publisher;
  /** Messages read, published and settled together. Default 1000. */
  batchSize?: number;
  /** A batch holds no more than this many bytes plus one message. Default 16 MiB. */
  batchBytes?: number;
  /** Only these streams. Fixed when the relay is first started. Default: all. */
  streams?: readonly string[];
  /** Streams whose messages need no order: a failed one holds up nothing. */
  unordered?: readonly string[];
  /** How new messages come: the relay looks for them, or the database tells of them by its stream. Default "polling". */
  source?: MessageSourceName;
  /** Where a relay begins that is started for the first time. Default "earliest". */
  start?: "earliest" | "now";
  /** Failed attempts until a message is dead. Default 10. */
  maxAttempts?: number;
  /** Delay between attempts, with full jitter. Default: 1 s, doubling up to 10 minutes. */
  backoff?: BackoffOptions;
  /** Default "continue"; or by stream. */
  onDead?: OnDead | Readonly<Record<string, OnDead>>;
  /** With more messages than this behind failed ones, the relay takes no new ones. Default 100,000. */
  maxParked?: number;
  /** A process that dies frees its work after this time. Default 30 s. */
  leaseMs?: number;
  /** Longest wait between looks at an idle queue. Default 50 ms. */
  maxPollMs?: number;
  /** Rotate and drop log segments from this process. Default true. */
  maintenance?: boolean;
  onEvent?: (event: RelayEvent) => void;
  clock?: Clock;
}

export interface RelaySettings {
  store: Store;
  name: string;
  publisher: Publisher;
  deadLetters: Publisher | undefined;
  batch: { messages: number; bytes: number };
  streams: readonly string[] | undefined;
  unordered: readonly string[];
  start: "earliest" | "now";
  source: MessageSourceName;
  maxAttempts: number;
  backoff: BackoffOptions;
  outageBackoff: BackoffOptions;
  onDead: (stream: string) => OnDead;
  maxParked: number;
  maxCrashes: number;
  leaseMs: number;
  maxPollMs: number;
  maintenance: boolean;
  emit: (event: RelayEvent) => void;
  clock: Clock;
}

const KNOWN = [
  "store",
  "name",
  "publisher",
  "deadLetters",
  "batchSize",
  "batchBytes",
  "streams",
  "unordered",
  "source",
  "start",
  "maxAttempts",
  "backoff",
  "onDead",
  "maxParked",
  "leaseMs",
  "maxPollMs",
  "maintenance",
  "onEvent",
  "clock",
];

const MAX_CRASHES = 3;

export function relaySettings(options: RelayOptions): RelaySettings {
  const of = "createRelay";
  requireRuntime(of);
  rejectUnknownOptions(of, options, KNOWN);
  requireName(of, "name", options.name);
  requireRole(options.store?.queue, "join", "store", "a store, such as createPostgresStore({ client })");
  requireRole(
    options.publisher,
    "publish",
    "publisher",
    "a publisher, such as createInProcessBus() or publishEach(send)",
  );
  if (options.deadLetters !== undefined)
    requireRole(options.deadLetters, "publish", "deadLetters", "a publisher, such as createKafkaPublisher({ … })");
  const batchSize = options.batchSize ?? 1000;
  requireInteger(of, "batchSize", batchSize, 1, 10_000);
  const batchBytes = options.batchBytes ?? 16 * 1024 * 1024;
  requireInteger(of, "batchBytes", batchBytes, 1);
  const leaseMs = options.leaseMs ?? 30_000;
  requireInteger(of, "leaseMs", leaseMs, 500, 3_600_000);
  const maxPollMs = options.maxPollMs ?? 50;
  requireInteger(of, "maxPollMs", maxPollMs, 1, 60_000);
  const maxAttempts = options.maxAttempts ?? 10;
  requireInteger(of, "maxAttempts", maxAttempts, 1);
  const maxParked = options.maxParked ?? 100_000;
  requireInteger(of, "maxParked", maxParked, 1);
  const backoff = options.backoff ?? { baseMs: 1000, maxMs: 600_000 };
  rejectUnknownOptions(`${of} backoff`, backoff, ["baseMs", "maxMs"]);
  requireInteger(of, "backoff.baseMs", backoff.baseMs, 0);
  requireInteger(of, "backoff.maxMs", backoff.maxMs, backoff.baseMs);
  requireOneOf("start", options.start ?? "earliest", ["earliest", "now"]);
  const source = options.source ?? "polling";
  requireOneOf("source", source, ["polling", "stream"]);
  if (source === "stream" && !options.store.capabilities.streams) throw noStream(options.store.name);
  requireNames("streams", options.streams);
  requireNames("unordered", options.unordered);
  requireOneOf("maintenance", options.maintenance ?? true, [true, false]);
  const { onDead = "continue", onEvent } = options;
  if (onEvent !== undefined) requireFunction(of, "onEvent", onEvent, "Pass (event) => { … }");
  for (const choice of typeof onDead === "string" ? [onDead] : Object.values(onDead))
    requireOneOf("onDead", choice, ["continue", "block"]);
  return {
    store: options.store,
    name: options.name,
    publisher: options.publisher,
    deadLetters: options.deadLetters,
    batch: { messages: batchSize, bytes: batchBytes },
    streams: options.streams,
    unordered: options.unordered ?? [],
    start: options.start ?? "earliest",
    source,
    maxAttempts,
    backoff,
    outageBackoff: { baseMs: 100, maxMs: 10_000 },
    onDead: typeof onDead === "string" ? () => onDead : (stream) => onDead[stream] ?? "continue",
    maxParked,
    maxCrashes: MAX_CRASHES,
    leaseMs,
    maxPollMs,
    maintenance: options.maintenance ?? true,
    emit: eventEmitter("relay", onEvent),
    clock: options.clock ?? systemClock,
  };
}

function noStream(store: string): TxboxError {
  return new TxboxError("invalid_option", `createRelay: a store of ${store} has no stream of new messages`, {
    field: "source",
    fix: 'Leave source out, or write source: "polling"',
  });
}

function requireRole(role: object | undefined, method: string, field: string, wanted: string): void {
  if (typeof role === "object" && role !== null && typeof Reflect.get(role, method) === "function") return;
  throw new TxboxError("invalid_option", `createRelay needs a ${field}`, { field, fix: `Pass ${wanted}` });
}

function requireNames(field: string, value: unknown): void {
  if (value === undefined || (Array.isArray(value) && value.every((name) => typeof name === "string"))) return;
  throw new TxboxError("invalid_option", `createRelay: ${field} must be an array of names of streams`, {
    field,
    fix: `Write ${field}: ["orders"]`,
  });
}

function requireOneOf(field: string, value: unknown, allowed: readonly unknown[]): void {
  if (allowed.includes(value)) return;
  throw new TxboxError("invalid_option", `createRelay: ${field} cannot be ${shownValue(value)}`, {
    field,
    fix: `Use ${allowed.join(" or ")}`,
  });
}
