import { Redis } from "ioredis";
import { createRedisPublisher, createRedisSubscriber } from "txbox/redis";
import type { Broker } from "../open-broker.ts";

/** `redis://127.0.0.1:6379`: a Redis stream for each stream, a consumer group for each consumer. */
export function openRedis(url: string): Broker {
  // Publisher and subscriber open connections of their own with these settings.
  const client = new Redis(url, { lazyConnect: true });
  return {
    publisher: () => createRedisPublisher({ client }),
    subscriber: ({ stream, consumer, ...more }) =>
      createRedisSubscriber({
        client,
        streams: stream,
        group: consumer,
        declare: true,
        takeOverAfterMs: 3000,
        ...more,
      }),
    close: async () => client.disconnect(),
  };
}
