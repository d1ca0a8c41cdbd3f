export { createNatsPublisher } from "./nats-publisher.ts";
export type { NatsPublisherOptions } from "./nats-publisher.ts";
export { createNatsSubscriber } from "./nats-subscriber.ts";
export type { NatsSubscriberOptions } from "./nats-subscriber.ts";
export type { ConsumerDeclaration } from "./prepare-consumer.ts";
export type { JetStreamConfig } from "./nats-declaration.ts";
export type { NatsConnection } from "./nats-client.ts";
