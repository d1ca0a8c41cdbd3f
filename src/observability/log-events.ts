import type { MaintenanceReport } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import type { Channels, Ended } from "../core/events.ts";
import { hideSecrets } from "../core/hide-secrets.ts";
import { rejectUnknownOptions, requireSwitch, requireFunction } from "../core/options.ts";
import { plural } from "../core/plain-words.ts";
import { printable } from "../core/printable.ts";
import {
  batchSentence,
  inboxSentence,
  maintenanceSentence,
  reconcilerSentence,
  relaySentence,
  subscriberSentence,
  wakeUpSentence,
} from "./event-sentences.ts";
import { listen } from "./listen.ts";
import { Repeats } from "./repeats.ts";

export type LogLevel = "error" | "warn" | "info" | "debug" | "trace";

/** A logger as pino, bunyan and others have it: fields first, then the message. */
export interface EventLogger {
  error(fields: object, message: string): unknown;
  warn(fields: object, message: string): unknown;
  info(fields: object, message: string): unknown;
  debug(fields: object, message: string): unknown;
  trace(fields: object, message: string): unknown;
  /** Operations are logged when it says yes to "trace" at the time of the call. */
  isLevelEnabled?(level: string): boolean;
}

export interface LogOptions {
  logger: EventLogger;
  /**
   * Operations are logged with the payloads of their messages, at level trace: for a developer's own machine. Default false:
   * a log is read by more people than the database.
   */
  payloads?: boolean;
}

/**
 * Logs what every outbox, relay, subscriber and inbox of this process tells; gives the function that ends it. Headers are
 * never logged, payloads only if asked for, and URLs and passwords are taken out of the texts of errors. What repeats itself is logged as a
 * warning once in a minute.
 */
export function logEvents(options: LogOptions): () => void {
  rejectUnknownOptions("logEvents", options ?? {}, ["logger", "payloads"]);
  const { logger, payloads = false } = options ?? {};
  requireSwitch("logEvents", "payloads", payloads);
  for (const level of LEVELS) {
    const fix = `Pass { logger: pino() } or { logger: console }, or any logger with ${LEVELS.join(", ")}`;
    requireFunction("logEvents", `logger.${level}`, logger?.[level], fix);
  }
  const log = new EventLog(logger, payloads);
  const ends = Object.keys(EVENTS).map((name) => log.event(name as EventName));
  if (logger.isLevelEnabled?.("trace") === true) {
    ends.push(...Object.keys(OPERATIONS).map((name) => log.operation(name as OperationName)));
  }
  return () => {
    for (const end of ends) end();
  };
}

const LEVELS: readonly LogLevel[] = ["error", "warn", "info", "debug", "trace"];

type EventName = Exclude<keyof Channels, `${string}:start` | `${string}:end`>;
type OperationName = Extract<keyof Channels, `${string}:end`>;

interface EventRule<Event> {
  readonly level: LogLevel | ((event: Event) => LogLevel);
  /** A warning that comes again and again: the first of a minute is one, those behind it are for debugging. */
  readonly repeats?: boolean;
  /** It is over: as important as what was logged of its beginning. */
  readonly ends?: EventName;
  readonly sentence: (event: Event) => string;
}

const relay = { sentence: relaySentence };
const subscriber = { sentence: subscriberSentence };

const EVENTS: { readonly [Name in EventName]: EventRule<Channels[Name]> } = {
  "txbox:relay:started": { level: "info", ...relay },
  "txbox:relay:stopped": { level: "info", ...relay },
  "txbox:relay:failed": { level: "error", ...relay },
  "txbox:relay:lanes": { level: "info", ...relay },
  "txbox:relay:paused": { level: "info", ...relay },
  "txbox:relay:resumed": { level: "info", ...relay },
  "txbox:relay:batch": { level: "debug", sentence: batchSentence },
  "txbox:relay:retry": { level: "warn", repeats: true, ...relay },
  "txbox:relay:dead": { level: "error", ...relay },
  "txbox:relay:outage": { level: "warn", repeats: true, ...relay },
  "txbox:relay:recovered": { level: "info", ends: "txbox:relay:outage", ...relay },
  "txbox:relay:route_out": { level: "warn", repeats: true, ...relay },
  "txbox:relay:route_back": { level: "info", ends: "txbox:relay:route_out", ...relay },
  "txbox:relay:full": { level: "warn", repeats: true, ...relay },
  "txbox:relay:not_full": { level: "info", ends: "txbox:relay:full", ...relay },
  "txbox:relay:lease_lost": { level: "warn", repeats: true, ...relay },
  "txbox:relay:store_error": { level: "warn", repeats: true, ...relay },
  "txbox:relay:maintained": { level: "info", ...relay },
  "txbox:relay:stream_started": { level: "info", ...relay },
  "txbox:relay:stream_lost": { level: "warn", repeats: true, ...relay },
  "txbox:subscriber:retry": { level: "warn", repeats: true, ...subscriber },
  "txbox:subscriber:dead": { level: "error", ...subscriber },
  "txbox:subscriber:outage": { level: "warn", repeats: true, ...subscriber },
  "txbox:subscriber:recovered": { level: "info", ends: "txbox:subscriber:outage", ...subscriber },
  "txbox:subscriber:stopped": { level: "info", ends: "txbox:subscriber:outage", ...subscriber },
  "txbox:inbox:newer_version": { level: "warn", repeats: true, sentence: inboxSentence },
  "txbox:reconciler:reconciled": {
    level: ({ enqueued }) => (enqueued > 0 ? "info" : "debug"),
    sentence: reconcilerSentence,
  },
  "txbox:reconciler:failed": { level: "warn", repeats: true, sentence: reconcilerSentence },
  "txbox:maintenance:done": {
    level: ({ report }) => (report.archiveError === undefined ? "debug" : "warn"),
    repeats: true,
    sentence: maintenanceSentence,
  },
  "txbox:maintenance:failed": { level: "warn", repeats: true, sentence: maintenanceSentence },
  "txbox:store:wake_up_started": { level: "info", sentence: wakeUpSentence },
  "txbox:store:wake_up_lost": { level: "warn", repeats: true, sentence: wakeUpSentence },
};

/** Which of their fields are logged. */
const OPERATIONS: { readonly [Name in OperationName]: (told: Channels[Name]) => object } = {
  "txbox:outbox:enqueue:end": ({ store, messages = [] }) => ({ store, ids: idsOf(messages), count: messages.length }),
  "txbox:relay:publish:end": ({ relay, system, kind, messages }) => ({
    relay,
    system,
    kind,
    ids: idsOf(messages),
    count: messages.length,
  }),
  "txbox:subscriber:receive:end": ({ consumer, system, message: { id, stream, type }, result }) => ({
    consumer,
    system,
    id,
    stream,
    type,
    result,
  }),
  "txbox:inbox:handle:end": ({ consumer, how, message: { id, stream, type }, result }) => ({
    consumer,
    how,
    id,
    stream,
    type,
    result,
  }),
};

/** The bodies that an operation is about: those of the ids that are logged. Of an enqueue only ids are told. */
const BODIES: { readonly [Name in OperationName]?: (told: Channels[Name]) => object } = {
  "txbox:relay:publish:end": ({ messages }) => ({ payloads: messages.slice(0, MAX_IDS).map(bodyText) }),
  "txbox:subscriber:receive:end": ({ message }) => ({ payload: bodyText(message) }),
  "txbox:inbox:handle:end": ({ message }) => ({ payload: bodyText(message) }),
};

const MAX_IDS = 20;
const MAX_BODY = 2000;

function bodyText({ body }: { readonly body: string | Uint8Array }): string {
  if (typeof body !== "string") return plural(body.length, "byte");
  return body.length <= MAX_BODY ? body : `${body.slice(0, MAX_BODY)} … (${plural(body.length, "character")})`;
}

function idsOf(messages: readonly { readonly id: string }[]): string[] {
  return messages.slice(0, MAX_IDS).map(({ id }) => id);
}

class EventLog {
  readonly #logger: EventLogger;
  readonly #repeats = new Repeats();
  readonly #withPayloads: boolean;

  constructor(logger: EventLogger, withPayloads: boolean) {
    this.#logger = logger;
    this.#withPayloads = withPayloads;
  }

  event(name: EventName): () => void {
    const rule = EVENTS[name] as EventRule<Channels[EventName]>;
    const { level: given, repeats = false, ends, sentence } = rule;
    return listen(name, (told) => {
      const event = withoutSecrets(told);
      const { type: _, ...fields } = event;
      const level = typeof given === "function" ? given(event) : given;
      const who = whoOf(event);
      const text = who.name === "" ? sentence(event) : `${who.name}: ${sentence(event)}`;
      if (repeats && level === "warn") {
        const missed = this.#repeats.missedBefore(`${name} ${who.key}`);
        if (missed === undefined) return this.#log("debug", name, fields, text);
        return this.#log(level, name, missed === 0 ? fields : { ...fields, repeated: missed }, text);
      }
      const shown = ends === undefined || this.#repeats.wasShown(`${ends} ${who.key}`);
      return this.#log(shown ? level : "debug", name, fields, text);
    });
  }

  operation(name: OperationName): () => void {
    const fieldsOf = OPERATIONS[name] as (told: Channels[OperationName]) => object;
    const bodiesOf = this.#withPayloads ? (BODIES[name] as typeof fieldsOf | undefined) : undefined;
    return listen(name, (told) => {
      const { ms = 0, error }: Ended = told;
      const failure = error === undefined ? {} : { error: hideSecrets(describeError(error)) };
      return this.#log(
        "trace",
        name,
        { ...fieldsOf(told), ...bodiesOf?.(told), ms: Math.round(ms * 1000) / 1000, ...failure },
        name,
      );
    });
  }

  /** What the logger gives is given on: a promise that rejects is the listener's. */
  #log(level: LogLevel, name: string, fields: object, text: string): unknown {
    return this.#logger[level]({ event: name, ...fields }, printable(text));
  }
}

/** The relay or consumer that an event is about. Each route of a relay is out for itself. */
function whoOf(told: object): { name: string; key: string } {
  const { relay, consumer, store, route } = told as Partial<Record<string, string>>;
  const name = relay ?? consumer ?? store ?? "";
  return { name, key: route === undefined ? name : `${name} ${route}` };
}

/** Loggers cannot write a bigint, and drivers put connection strings into their errors. */
function withoutSecrets<Event extends object>(told: Event): Event & { type?: unknown } {
  const event = { ...told } as Record<string, unknown>;
  if (typeof event["error"] === "string") event["error"] = hideSecrets(event["error"]);
  const report = event["report"] as MaintenanceReport | undefined;
  if (report?.archiveError !== undefined)
    event["report"] = { ...report, archiveError: hideSecrets(report.archiveError) };
  if (typeof event["position"] === "bigint") event["position"] = String(event["position"]);
  return event as Event & { type?: unknown };
}
