export { createKafkaPublisher } from "./kafka-publisher.ts";
export type { KafkaPublisherOptions } from "./kafka-publisher.ts";
export { createKafkaPipeline } from "./pipeline/kafka-pipeline.ts";
export type { KafkaPipeline, KafkaPipelineOptions } from "./pipeline/kafka-pipeline.ts";
export type { PipelineHandler } from "./pipeline/partition-worker.ts";
export type { PipelineOutput } from "./pipeline/pipeline-output.ts";
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
  KafkaTransaction,
  KafkaTransactionalProducer,
} from "./kafka-client.ts";
export type { SubscriberEvent } from "../../adapter/index.ts";
