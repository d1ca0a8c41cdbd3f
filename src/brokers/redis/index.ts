export type { RedisClient } from "./redis-client.ts";
export { createRedisPublisher } from "./redis-publisher.ts";
export type { RedisPublisherOptions, RedisTrim, ReplicasWanted } from "./redis-publisher-options.ts";
export { createRedisReceiptFilter } from "./redis-receipt-filter.ts";
export type { RedisReceiptFilter, RedisReceiptFilterOptions } from "./redis-receipt-filter.ts";
export { createRedisSubscriber } from "./redis-subscriber.ts";
export type { RedisSubscriberOptions } from "./redis-subscriber-options.ts";
