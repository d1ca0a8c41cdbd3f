import type { Publisher, PublishResult } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { RedisBatch } from "./redis-batch.ts";
import { type RedisConnection, RedisLink } from "./redis-link.ts";
import { publisherSettings, type RedisPublisherOptions } from "./redis-publisher-options.ts";

const CLOSING_MS = 2000;
/** What Redis takes as one value unless it is configured otherwise. */
const DEFAULT_MAX_BYTES = 512 * 1024 * 1024;

/**
 * Publishes to Redis Streams, a batch in one request: a script adds the entries in order and ends at the first that
 * fails, so that nothing of a key can overtake. It has a connection of its own, made after the client's options.
 */
export function createRedisPublisher(options: RedisPublisherOptions): Publisher {
  const settings = publisherSettings(options);
  const link = new RedisLink(settings.client);
  const inFlight = new Set<Promise<unknown>>();
  let closed = false;
  let limit: number | undefined;
  const maxBytes = async (connection: RedisConnection): Promise<number> => (limit ??= await valueLimit(connection));

  async function publish(messages: readonly Message[], signal: AbortSignal): Promise<readonly PublishResult[]> {
    if (closed) throw new UnavailableError("This publisher is closed", { fix: "Create another one" });
    if (messages.length === 0 || signal.aborted) return messages.map(() => ({ status: "unavailable" }));
    const sending = new RedisBatch(link, settings, messages, maxBytes).send(signal);
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
    async close() {
      closed = true;
      const giveUp = setTimeout(() => link.close(), CLOSING_MS);
      await Promise.allSettled(inFlight);
      clearTimeout(giveUp);
      link.close();
    },
  };
}

/** What the server takes as one value; a server that does not say is taken to have the default. */
async function valueLimit(connection: RedisConnection): Promise<number> {
  try {
    const reply = (await connection.command(["CONFIG", "GET", "proto-max-bulk-len"])) as (Buffer | undefined)[];
    return Number(reply[1]?.toString()) || DEFAULT_MAX_BYTES;
  } catch (error) {
    if (error instanceof Error && /^(?:ERR|NOPERM)\b/.test(error.message)) return DEFAULT_MAX_BYTES;
    throw error;
  }
}
