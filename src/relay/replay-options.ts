import type { Publisher } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import {
  rejectUnknownOptions,
  requireFunction,
  requireInteger,
  requireSignal,
  requireSwitch,
  requireText,
  requireTexts,
  requireTime,
} from "../core/options.ts";
import { valueKind } from "../core/value-kind.ts";

/** Only messages that match every field that is there. */
export interface ReplayFilter {
  /** Default: all but what inboxes have stored, as for a relay. */
  streams?: readonly string[];
  type?: string;
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  correlationId?: string;
  id?: string;
  /** Enqueued from then on. */
  since?: Date;
  /** Enqueued before. */
  until?: Date;
  /** Only what follows this position: where a replay that was stopped goes on. */
  after?: bigint;
}

export interface ReplayOptions {
  /** Archive files in the order of their messages, or a function that reads messages, such as `() => store.readLog({ since })`. */
  from: readonly string[] | (() => AsyncIterable<Message>);
  publisher: Publisher;
  filter?: ReplayFilter;
  /** Messages per second. Default 100. */
  rate?: number;
  /** New ids, made of the old ones: the same each time. Default: the ids stay, and inboxes drop what they have receipts for. */
  newIds?: boolean;
  /** Send again what is a replay itself. Default: such messages are refused before anything is sent. */
  includeReplays?: boolean;
  /** Look and count, send nothing. */
  dryRun?: boolean;
  /** Give up when nothing has gone through for so long. Default 60 s. */
  patienceMs?: number;
  onProgress?: (progress: ReplayProgress) => void;
  /** Ends it after the messages that are on their way. */
  signal?: AbortSignal;
}

export interface ReplayProgress {
  sent: number;
  /** How many there are. */
  found: number;
  /** The position of the last one that went out. */
  position: bigint;
}

type Check = (of: string, name: string, value: unknown) => void;

const FILTER: { readonly [Name in keyof ReplayFilter]-?: Check } = {
  streams: requireTexts,
  type: requireText,
  key: requireText,
  aggregateType: requireText,
  aggregateId: requireText,
  correlationId: requireText,
  id: requireText,
  since: requireTime,
  until: requireTime,
  after: requirePosition,
};

const OPTIONS: { readonly [Name in keyof ReplayOptions]-?: Check } = {
  from: requireSource,
  publisher: requirePublisher,
  filter: () => undefined,
  rate: (of, name, value) => requireInteger(of, name, value, 1, 1_000_000),
  newIds: requireSwitch,
  includeReplays: requireSwitch,
  dryRun: requireSwitch,
  patienceMs: (of, name, value) => requireInteger(of, name, value, 1),
  onProgress: (of, name, value) => requireFunction(of, name, value, "Pass (progress) => { … }, or leave it out"),
  signal: requireSignal,
};

/** A filter that was misunderstood would send the wrong messages: so everything is checked. Throws `invalid_option`. */
export function checkReplayOptions(options: ReplayOptions): void {
  rejectUnknownOptions("replay", options, Object.keys(OPTIONS));
  const { filter = {} } = options;
  for (const [name, requireValid] of Object.entries(OPTIONS)) {
    const value: unknown = options[name as keyof ReplayOptions];
    if (value !== undefined || name === "from" || name === "publisher") requireValid("replay", name, value);
  }
  rejectUnknownOptions("replay filter", filter, Object.keys(FILTER));
  for (const [name, value] of Object.entries(filter))
    FILTER[name as keyof ReplayFilter]("replay", `filter.${name}`, value);
}

function requireSource(of: string, field: string, from: unknown): void {
  if (typeof from === "function") return;
  if (Array.isArray(from) && from.length > 0 && from.every((file) => typeof file === "string" && file !== "")) return;
  const what = Array.isArray(from) ? "must have at least one archive file, each as a path" : `is ${valueKind(from)}`;
  const fix = "Pass archive files or () => store.readLog({ since })";
  throw new TxboxError("invalid_option", `${of}: ${field} ${what}`, { field, fix });
}

function requirePublisher(of: string, field: string, publisher: unknown): void {
  if (typeof (publisher as Publisher | undefined)?.publish === "function") return;
  throw new TxboxError("invalid_option", `${of} needs a publisher`, { field, fix: "Pass that of a relay" });
}

function requirePosition(of: string, field: string, value: unknown): void {
  if (typeof value === "bigint" && value >= 0n) return;
  const fix = "Write it as a bigint, such as 5n, or leave it out";
  throw new TxboxError("invalid_option", `${of}: ${field} must be a position, got ${valueKind(value)}`, { field, fix });
}
