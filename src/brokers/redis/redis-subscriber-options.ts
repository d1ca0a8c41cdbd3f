import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { TxboxError } from "../../core/errors.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import {
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  type SubscriberOptions,
  type SubscriberSettings,
} from "../shared/subscriber-options.ts";
import { requireRedisClient, type RedisClient } from "./redis-client.ts";

export interface RedisSubscriberOptions extends SubscriberOptions {
  /** Of ioredis or node-redis; its options are used for connections of the subscriber's own. */
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
  /** Stream of dead letters. Default: the stream's key and ".dead". */
  deadLetter?: (streamKey: string) => string;
}

export interface RedisSubscriberSettings extends SubscriberSettings {
  client: RedisClient;
  streams: readonly string[];
  group: string | undefined;
  member: string | undefined;
  ordered: boolean;
  takeOverAfterMs: number;
  declare: boolean;
  deadLetter: (streamKey: string) => string;
}

const OF = "createRedisSubscriber";
const OPTIONS: readonly string[] = [
  ...SUBSCRIBER_OPTIONS,
  "client",
  "streams",
  "group",
  "member",
  "ordered",
  "takeOverAfterMs",
  "declare",
  "deadLetter",
];

export function redisSubscriberSettings(options: RedisSubscriberOptions): RedisSubscriberSettings {
  const client = requireRedisClient(OF, options?.client);
  rejectUnknownOptions(OF, options, OPTIONS);
  const { group, member, ordered = true, takeOverAfterMs = 30_000, declare = false } = options;
  requireInteger(OF, "takeOverAfterMs", takeOverAfterMs, 100, 2 ** 31 - 1);
  for (const [name, value] of Object.entries({ group, member })) {
    if (value !== undefined && (typeof value !== "string" || value === ""))
      throw invalid(name, `${name} must be a name`, `Leave ${name} out for the default`);
  }
  const streams = typeof options.streams === "string" ? [options.streams] : [...new Set(options.streams ?? [])];
  if (streams.length === 0 || !streams.every((one) => typeof one === "string" && one !== ""))
    throw invalid("streams", "no streams to read are given", 'Pass { streams: "orders" } or a list of names');
  const deadLetter = options.deadLetter ?? ((streamKey: string) => `${streamKey}.dead`);
  requireFunction(OF, "deadLetter", deadLetter, 'Pass (streamKey) => "name"');
  const common = subscriberSettings(OF, options);
  return { ...common, client, streams, group, member, ordered, takeOverAfterMs, declare, deadLetter };
}

/** A name that no other process has. */
export function newMember(): string {
  return `${hostname()}:${process.pid}:${randomBytes(4).toString("hex")}`;
}

function invalid(field: string, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${OF}: ${message}`, { field, fix });
}
