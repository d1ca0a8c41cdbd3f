import { TxboxError } from "../../core/errors.ts";
import { LANES, laneOf } from "../../core/lane.ts";
import type { Message } from "../../core/message.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import { requireEnvelope, type EnvelopeFormat } from "../shared/envelope.ts";
import { requireRedisClient, type RedisClient } from "./redis-client.ts";

/** What to forget of a stream: entries beyond a number, or older than some time. Redis keeps a few more than that. */
export type RedisTrim = { maxLength: number; maxAgeMs?: never } | { maxAgeMs: number; maxLength?: never };

export interface ReplicasWanted {
  count: number;
  timeoutMs: number;
}

export interface RedisPublisherOptions {
  /** Of ioredis or node-redis; its options are used for a connection of the publisher's own. */
  client: RedisClient;
  /** The Redis key of a message's stream. Default: the name of the message's stream. */
  streamKey?: (message: Message) => string;
  /** Spreads each stream over this many, `<stream>.0` and so on, by ordering key; 2 to 64. Default: one stream. */
  partitions?: number;
  /** Create streams that do not exist (default), or reject their messages. */
  declare?: boolean;
  /** Default: entries are kept forever. Whatever is trimmed before it was read is lost. */
  trim?: RedisTrim;
  /** Confirm a message only when so many replicas have it, too. Default: as soon as the master has it. */
  replicas?: ReplicasWanted;
  /** Default "native". */
  envelope?: EnvelopeFormat;
  /** `source` of CloudEvents. Default: "/" and the stream. */
  source?: string;
}

export interface RedisPublisherSettings {
  client: RedisClient;
  streamKey: (message: Message) => string;
  declare: boolean;
  trim: readonly [how: string, threshold: string];
  replicas: ReplicasWanted | undefined;
  envelope: EnvelopeFormat;
  source: string | undefined;
}

const OF = "createRedisPublisher";
const OPTIONS: readonly (keyof RedisPublisherOptions)[] = [
  "client",
  "streamKey",
  "partitions",
  "declare",
  "trim",
  "replicas",
  "envelope",
  "source",
];

export function publisherSettings(options: RedisPublisherOptions): RedisPublisherSettings {
  const client = requireRedisClient(OF, options?.client);
  rejectUnknownOptions(OF, options, OPTIONS);
  const { partitions = 1, declare = true, envelope = "native", replicas, source } = options;
  requireInteger(OF, "partitions", partitions, 1, LANES);
  requireEnvelope(OF, envelope);
  if (replicas !== undefined) {
    requireInteger(OF, "replicas.count", replicas.count, 1);
    requireInteger(OF, "replicas.timeoutMs", replicas.timeoutMs, 1, 60_000);
  }
  const name = options.streamKey ?? (({ stream }: Message) => stream);
  requireFunction(OF, "streamKey", name, "Pass (message) => message.stream");
  return {
    client,
    streamKey: partitions === 1 ? name : (message) => `${name(message)}.${laneOf(message.key) % partitions}`,
    declare,
    trim: trimming(options.trim),
    replicas,
    envelope,
    source,
  };
}

function trimming(trim: RedisTrim | undefined): readonly [string, string] {
  if (trim === undefined) return ["", ""];
  rejectUnknownOptions(`${OF} trim`, trim, ["maxLength", "maxAgeMs"]);
  if (trim.maxLength !== undefined && trim.maxAgeMs !== undefined)
    throw invalid("trim", "trim takes maxLength or maxAgeMs, not both", "Leave one of them out");
  if (trim.maxLength !== undefined) {
    requireInteger(OF, "trim.maxLength", trim.maxLength, 1);
    return ["MAXLEN", String(trim.maxLength)];
  }
  requireInteger(OF, "trim.maxAgeMs", trim.maxAgeMs, 1);
  return ["MINID", String(trim.maxAgeMs)];
}

function invalid(field: string, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${OF}: ${message}`, { field, fix });
}
