import { createSubscriber, Deliveries } from "../../adapter/index.ts";
import type { Subscriber } from "../../core/contracts.ts";
import { OrderedReader } from "./ordered-reader.ts";
import { explainRedis } from "./redis-errors.ts";
import { RedisLink } from "./redis-link.ts";
import { newMember, redisSubscriberSettings, type RedisSubscriberOptions } from "./redis-subscriber-options.ts";
import { SharedReader } from "./shared-reader.ts";
import { StreamGroup } from "./stream-group.ts";

/**
 * Reads Redis Streams as a member of a consumer group. Entries are acknowledged when they are done; those of a process
 * that has died are taken over. It has connections of its own, made after the client's options.
 */
export function createRedisSubscriber(options: RedisSubscriberOptions): Subscriber {
  const settings = redisSubscriberSettings(options);
  return createSubscriber(async (consumer, handle) => {
    const { client, group = consumer, member = newMember(), streams, ordered, declare } = settings;
    const link = new RedisLink(client);
    const groups = streams.map((streamKey) => new StreamGroup(link, streamKey, group, member));
    try {
      for (const one of groups) await one.ensure(declare);
    } catch (error) {
      link.close();
      throw explainRedis(error);
    }
    const deliveries = new Deliveries(consumer, handle, settings);
    const Reader = ordered ? OrderedReader : SharedReader;
    const readers = groups.map(
      (one) => new Reader({ consumer, group: one, blocking: new RedisLink(client), deliveries, settings }),
    );
    for (const reader of readers) reader.start();
    return {
      async stop() {
        for (const reader of readers) reader.stopTaking();
        await deliveries.stop();
        await Promise.all(readers.map((reader) => reader.end(settings.member === undefined)));
        link.close();
      },
    };
  });
}
