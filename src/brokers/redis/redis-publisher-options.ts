import {
  callback,
  ENVELOPE_OPTIONS,
  flag,
  integer,
  invalidOption,
  milliseconds,
  optional,
  readOptions,
  required,
  type EnvelopeFormat,
  type EnvelopeOptions,
  type OptionSpec,
  type OptionSpecs,
} from "../../adapter/index.ts";
import { LANES, laneOf } from "../../core/lane.ts";
import type { Message } from "../../core/message.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { requireRedisClient, type RedisClient } from "./redis-client.ts";

/** What to forget of a stream: entries beyond a number, or older than some time. Redis keeps a few more than that. */
export type RedisTrim = { maxLength: number; maxAgeMs?: never } | { maxAgeMs: number; maxLength?: never };

export interface ReplicasWanted {
  count: number;
  timeoutMs: number;
}

export interface RedisPublisherOptions extends EnvelopeOptions {
  /** Of ioredis or node-redis: it says where to connect. It stays yours to close. */
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
  /** Without an answer for this long, Redis counts as out. Default 10 s. */
  timeoutMs?: number;
}

export interface RedisPublisherSettings {
  readonly client: RedisClient;
  readonly streamKey: (message: Message) => string;
  readonly declare: boolean;
  readonly trim: readonly [how: string, threshold: string];
  readonly replicas: ReplicasWanted | undefined;
  readonly envelope: EnvelopeFormat;
  readonly source: string | undefined;
  readonly timeoutMs: number;
}

const OF = "createRedisPublisher";

const REPLICAS: OptionSpec<ReplicasWanted> = {
  read(of, name, value) {
    rejectUnknownOptions(`${of} ${name}`, value as object, ["count", "timeoutMs"]);
    const { count, timeoutMs } = value as ReplicasWanted;
    requireInteger(of, `${name}.count`, count, 1);
    requireInteger(of, `${name}.timeoutMs`, timeoutMs, 1, 60_000);
    return { count, timeoutMs };
  },
};

const TRIM: OptionSpec<RedisTrim> = {
  read(of, name, value) {
    rejectUnknownOptions(`${of} ${name}`, value as object, ["maxLength", "maxAgeMs"]);
    const { maxLength, maxAgeMs } = value as { maxLength?: number; maxAgeMs?: number };
    if (maxLength !== undefined && maxAgeMs !== undefined)
      throw invalidOption(of, name, "trim takes maxLength or maxAgeMs, not both", "Leave one of them out");
    if (maxLength !== undefined) requireInteger(of, `${name}.maxLength`, maxLength, 1);
    else requireInteger(of, `${name}.maxAgeMs`, maxAgeMs, 1);
    return value as RedisTrim;
  },
};

const OPTIONS = {
  ...ENVELOPE_OPTIONS,
  client: required(requireRedisClient),
  streamKey: callback("Pass (message) => message.stream", ({ stream }: Message) => stream),
  partitions: integer(1, LANES, 1),
  declare: flag(true),
  trim: optional(TRIM),
  replicas: optional(REPLICAS),
  timeoutMs: milliseconds(10_000),
} satisfies OptionSpecs<RedisPublisherOptions>;

export function publisherSettings(options: RedisPublisherOptions): RedisPublisherSettings {
  const { partitions, streamKey: name, trim, ...read } = readOptions(OF, options, OPTIONS);
  return {
    ...read,
    streamKey: partitions === 1 ? name : (message) => `${name(message)}.${laneOf(message.key) % partitions}`,
    trim: trimming(trim),
  };
}

function trimming(trim: RedisTrim | undefined): readonly [string, string] {
  if (trim === undefined) return ["", ""];
  return trim.maxLength === undefined ? ["MINID", String(trim.maxAgeMs)] : ["MAXLEN", String(trim.maxLength)];
}
