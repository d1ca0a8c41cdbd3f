import type { Subscriber } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { Deliveries } from "../shared/deliveries.ts";
import { OrderedReader } from "./ordered-reader.ts";
import { explainRedis } from "./redis-errors.ts";
import { RedisLink } from "./redis-link.ts";
import { newMember, redisSubscriberSettings, type RedisSubscriberOptions } from "./redis-subscriber-options.ts";
import { SharedReader } from "./shared-reader.ts";
import { StreamGroup } from "./stream-group.ts";
import type { StreamReader } from "./stream-reader.ts";

interface Subscription {
  readonly consumer: string;
  readonly deliveries: Deliveries;
  readonly readers: readonly StreamReader[];
  readonly link: RedisLink;
}

/**
 * Reads Redis Streams as a member of a consumer group. Entries are acknowledged when they are done; those of a process
 * that has died are taken over. It has connections of its own, made after the client's options.
 */
export function createRedisSubscriber(options: RedisSubscriberOptions): Subscriber {
  const settings = redisSubscriberSettings(options);
  let subscription: Promise<Subscription> | undefined;

  async function subscribe(consumer: string, handle: Parameters<Subscriber["start"]>[1]): Promise<Subscription> {
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
    return { consumer, deliveries, readers, link };
  }

  return {
    async start(consumer, handle) {
      if (subscription !== undefined) {
        throw new TxboxError("invalid_option", "This subscriber is running already", {
          fix: `Stop it first, or create another one for ${consumer}`,
        });
      }
      const starting = (subscription = subscribe(consumer, handle));
      try {
        await starting;
      } catch (error) {
        if (subscription === starting) subscription = undefined;
        throw error;
      }
    },
    async stop() {
      const stopping = subscription;
      subscription = undefined;
      if (stopping === undefined) return;
      const { deliveries, readers, link } = await stopping;
      for (const reader of readers) reader.stopTaking();
      await deliveries.stop();
      await Promise.all(readers.map((reader) => reader.end(settings.member === undefined)));
      link.close();
    },
  };
}
