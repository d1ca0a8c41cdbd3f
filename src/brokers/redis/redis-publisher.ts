import { createPublisher, EncodedAhead } from "../../adapter/index.ts";
import type { Publisher } from "../../core/contracts.ts";
import { RedisBatch, type ValueLimit } from "./redis-batch.ts";
import { encodeEntry } from "./redis-envelope.ts";
import { isReply } from "./redis-errors.ts";
import { type RedisConnection, RedisLink } from "./redis-link.ts";
import { publisherSettings, type RedisPublisherOptions } from "./redis-publisher-options.ts";

/**
 * Publishes to Redis Streams, a batch in one request: a script adds the entries in order and ends at the first that
 * fails, so that nothing of a key can overtake. It has connections of its own, made after the client's options.
 */
export function createRedisPublisher(options: RedisPublisherOptions): Publisher {
  const settings = publisherSettings(options);
  // A batch that is given up takes its connection with it: that must not touch a batch of the other kind.
  const { client, timeoutMs } = settings;
  const links = { new: new RedisLink(client, timeoutMs), retry: new RedisLink(client, timeoutMs) };
  let limit: ValueLimit | undefined;
  const ahead = new EncodedAhead((message) => encodeEntry(message, settings.envelope, settings.source));
  const limitOf = async (connection: RedisConnection): Promise<ValueLimit> => (limit ??= await valueLimit(connection));
  const tools = { settings, ahead, limitOf, seen: new Set<string>() };
  return createPublisher({
    system: "redis",
    keepsKeyOrder: true,
    publish: (batch) => new RedisBatch(batch, links[batch.kind ?? "new"], tools).send(),
    prepare: (messages) => ahead.prepare(messages),
    close() {
      links.new.close();
      links.retry.close();
    },
  });
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
