export { createKafkaPublisher } from "./kafka-publisher.ts";
export type { KafkaPublisherOptions } from "./kafka-publisher.ts";
export { createKafkaSubscriber } from "./kafka-subscriber.ts";
export type { KafkaSubscriberOptions } from "./kafka-subscriber.ts";
export type { DeclareTopics } from "./kafka-topics.ts";
export type {
  KafkaAdmin,
  KafkaCompression,
  KafkaConsumer,
  KafkaProducer,
  KafkaRecordToSend,
  KafkaSendOptions,
} from "./kafka-client.ts";
export type { SubscriberEvent } from "../shared/subscriber-options.ts";
