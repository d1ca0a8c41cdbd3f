import type { Publisher, PublishResult } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { SealedAhead } from "../shared/sealed-ahead.ts";
import { RedisBatch, type ValueLimit } from "./redis-batch.ts";
import { sealEntry } from "./redis-entry.ts";
import { isReply } from "./redis-errors.ts";
import { type RedisConnection, RedisLink } from "./redis-link.ts";
import { publisherSettings, type RedisPublisherOptions } from "./redis-publisher-options.ts";

const CLOSING_MS = 2000;

/**
 * Publishes to Redis Streams, a batch in one request: a script adds the entries in order and ends at the first that
 * fails, so that nothing of a key can overtake. It has a connection of its own, made after the client's options.
 */
export function createRedisPublisher(options: RedisPublisherOptions): Publisher {
  const settings = publisherSettings(options);
  const link = new RedisLink(settings.client);
  const inFlight = new Set<Promise<unknown>>();
  let closed = false;
  let limit: ValueLimit | undefined;
  const ahead = new SealedAhead((message) => sealEntry(message, settings.envelope, settings.source));
  const limitOf = async (connection: RedisConnection): Promise<ValueLimit> => (limit ??= await valueLimit(connection));
  const tools = { link, settings, ahead, limitOf, seen: new Set<string>() };

  async function publish(messages: readonly Message[], signal: AbortSignal): Promise<readonly PublishResult[]> {
    if (closed) throw new UnavailableError("This publisher is closed", { fix: "Create another one" });
    if (messages.length === 0 || signal.aborted) return messages.map(() => ({ status: "unavailable" }));
    const sending = new RedisBatch(messages, tools).send(signal);
    inFlight.add(sending);
    try {
      return await sending;
    } finally {
      inFlight.delete(sending);
    }
  }

  return {
    keepsKeyOrder: true,
    publish,
    prepare: (messages) => ahead.prepare(messages),
    async close() {
      closed = true;
      const giveUp = setTimeout(() => link.close(), CLOSING_MS);
      await Promise.allSettled(inFlight);
      clearTimeout(giveUp);
      link.close();
    },
  };
}

/** Services often do not let clients ask. */
async function valueLimit(connection: RedisConnection): Promise<ValueLimit> {
  const suspects = new Set<string>();
  try {
    const reply = (await connection.command(["CONFIG", "GET", "proto-max-bulk-len"])) as (Buffer | undefined)[];
    return { bytes: Number(reply[1]?.toString()) || undefined, suspects };
  } catch (error) {
    if (isReply(error, "ERR") || isReply(error, "NOPERM")) return { bytes: undefined, suspects };
    throw error;
  }
}
