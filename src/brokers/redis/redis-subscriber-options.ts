import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import {
  deadLetterName,
  flag,
  milliseconds,
  names,
  optional,
  readOptions,
  required,
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  text,
  type OptionSpecs,
  type SubscriberOptions,
  type SubscriberSettings,
} from "../../adapter/index.ts";
import { requireRedisClient, type RedisClient } from "./redis-client.ts";

export interface RedisSubscriberOptions extends SubscriberOptions {
  /** Of ioredis or node-redis: it says where to connect. It stays yours to close. */
  client: RedisClient;
  /** Redis keys of the streams to read. */
  streams: string | readonly string[];
  /** Consumer group. Default: the name of the inbox's consumer. */
  group?: string;
  /** Name in the group; two processes must not have the same at once. Default: a new one for every start. */
  member?: string;
  /**
   * True (default): one process at a time reads a stream and the others stand by, so that keys keep their order. False:
   * all processes of the group share a stream, and messages of a key may be handled by two of them, out of order.
   */
  ordered?: boolean;
  /** How long a process may be silent until another takes its messages over. Default 30 s. */
  takeOverAfterMs?: number;
  /** Create streams and groups that do not exist; a new group begins with the oldest entry. Default false. */
  declare?: boolean;
  /** The stream of dead letters, by the stream they come from. Default: `<stream>.dead`. */
  deadLetter?: string | ((streamKey: string) => string);
}

export interface RedisSubscriberSettings extends SubscriberSettings {
  readonly client: RedisClient;
  readonly streams: readonly string[];
  readonly group: string | undefined;
  readonly member: string | undefined;
  readonly ordered: boolean;
  readonly takeOverAfterMs: number;
  readonly declare: boolean;
  readonly deadLetter: (streamKey: string) => string;
}

const OPTIONS = {
  ...SUBSCRIBER_OPTIONS,
  client: required(requireRedisClient),
  streams: names('Pass { streams: "orders" } or a list of names'),
  group: optional(text("Leave group out for the default")),
  member: optional(text("Leave member out for the default")),
  ordered: flag(true),
  takeOverAfterMs: milliseconds(30_000, 100),
  declare: flag(false),
  deadLetter: deadLetterName,
} satisfies OptionSpecs<RedisSubscriberOptions>;

export function redisSubscriberSettings(options: RedisSubscriberOptions): RedisSubscriberSettings {
  const read = readOptions("createRedisSubscriber", options, OPTIONS);
  return { ...read, ...subscriberSettings(read, "redis") };
}

/** A name that no other process has. */
export function newMember(): string {
  return `${hostname()}:${process.pid}:${randomBytes(4).toString("hex")}`;
}
