import type { PublisherFeature, StoreFeature, SubscriberFeature } from "../../src/testing/index.ts";

export type SuiteName = "store" | "publisher" | "subscriber";

/** A line of the matrix: an adapter with the client and server it is proven on. */
export interface Target<Feature extends string = string> {
  readonly id: string;
  readonly suite: SuiteName;
  /** The folder of the adapter. */
  readonly adapter: string;
  readonly label: string;
  readonly features: readonly Feature[];
}

export type CaseResult = "passed" | "failed" | "not applicable";

export interface TargetResults {
  readonly target: string;
  readonly results: Readonly<Record<string, CaseResult>>;
}

const ALL: readonly StoreFeature[] = ["concurrency", "sharing", "savepoints", "log", "retention", "restore"];
const ONE_CONNECTION: readonly StoreFeature[] = ["savepoints", "log", "retention", "restore"];

function postgres(id: string, label: string, features = ALL): Target<StoreFeature> {
  return { id: `postgres-${id}`, suite: "store", adapter: "postgres", label, features };
}

export const nodePostgres: Target<StoreFeature> = postgres("node-postgres", "PostgreSQL 18, node-postgres");
export const postgresJs: Target<StoreFeature> = postgres("postgres-js", "PostgreSQL 18, postgres.js");
export const systemPostgres: Target<StoreFeature> = postgres("system", "PostgreSQL 15 (Debian), node-postgres");
export const pgBouncer: Target<StoreFeature> = postgres(
  "pgbouncer",
  "PostgreSQL 18 behind PgBouncer in transaction mode, node-postgres",
);
export const pglite: Target<StoreFeature> = postgres("pglite", "PGlite: one connection, one process", ONE_CONNECTION);

export const mongodb: Target<StoreFeature> = {
  id: "mongodb-driver",
  suite: "store",
  adapter: "mongodb",
  label: "MongoDB 6 replica set, official driver",
  features: ["concurrency", "sharing"],
};

export const inProcessPublisher: Target<PublisherFeature> = {
  id: "in-process-publisher",
  suite: "publisher",
  adapter: "in-process",
  label: "In-process bus, publishing",
  features: ["refusal", "outage", "hanging"],
};

export const inProcessSubscriber: Target<SubscriberFeature> = {
  id: "in-process-subscriber",
  suite: "subscriber",
  adapter: "in-process",
  label: "In-process bus, subscribing",
  features: ["keyOrder", "parallel"],
};

function redisPublisher(client: "ioredis" | "node-redis"): Target<PublisherFeature> {
  return {
    id: `redis-publisher-${client}`,
    suite: "publisher",
    adapter: "redis",
    label: `Redis 7 (Debian), ${client}, publishing`,
    features: ["refusal", "oversized", "unroutable", "outage", "reconnect", "hanging", "closing", "cloudEvents"],
  };
}

function redisSubscriber(client: "ioredis" | "node-redis"): Target<SubscriberFeature> {
  return {
    id: `redis-subscriber-${client}`,
    suite: "subscriber",
    adapter: "redis",
    label: `Redis 7 (Debian), ${client}, subscribing`,
    features: [
      "redelivery",
      "durable",
      "keyOrder",
      "orderedRetry",
      "parallel",
      "competing",
      "foreign",
      "reconnect",
      "restart",
      "deadLetters",
    ],
  };
}

export const redisPublisherIoredis: Target<PublisherFeature> = redisPublisher("ioredis");
export const redisPublisherNodeRedis: Target<PublisherFeature> = redisPublisher("node-redis");
export const redisSubscriberIoredis: Target<SubscriberFeature> = redisSubscriber("ioredis");
export const redisSubscriberNodeRedis: Target<SubscriberFeature> = redisSubscriber("node-redis");

export const rabbitmqPublisher: Target<PublisherFeature> = {
  id: "rabbitmq-publisher",
  suite: "publisher",
  adapter: "rabbitmq",
  label: "RabbitMQ 3.10, amqplib, publishing",
  features: ["refusal", "oversized", "unroutable", "outage", "reconnect", "hanging", "closing", "cloudEvents"],
};

export const rabbitmqSubscriber: Target<SubscriberFeature> = {
  id: "rabbitmq-subscriber",
  suite: "subscriber",
  adapter: "rabbitmq",
  label: "RabbitMQ 3.10, amqplib, subscribing",
  features: [
    "redelivery",
    "durable",
    "keyOrder",
    "orderedRetry",
    "parallel",
    "competing",
    "foreign",
    "reconnect",
    "restart",
    "deadLetters",
  ],
};

export const natsPublisher: Target<PublisherFeature> = {
  id: "nats-publisher",
  suite: "publisher",
  adapter: "nats",
  label: "NATS JetStream 2.9, @nats-io/transport-node, publishing",
  features: ["refusal", "oversized", "unroutable", "outage", "reconnect", "hanging", "closing", "cloudEvents"],
};

export const natsSubscriber: Target<SubscriberFeature> = {
  id: "nats-subscriber",
  suite: "subscriber",
  adapter: "nats",
  label: "NATS JetStream 2.9, @nats-io/transport-node, subscribing",
  features: [
    "redelivery",
    "durable",
    "keyOrder",
    "orderedRetry",
    "parallel",
    "competing",
    "foreign",
    "reconnect",
    "restart",
    "deadLetters",
  ],
};

export const kafkaPublisher: Target<PublisherFeature> = {
  id: "kafka-publisher",
  suite: "publisher",
  adapter: "kafka",
  label: "Kafka 4.1, @platformatic/kafka, publishing",
  features: ["refusal", "oversized", "unroutable", "outage", "reconnect", "hanging", "closing", "cloudEvents"],
};

export const kafkaSubscriber: Target<SubscriberFeature> = {
  id: "kafka-subscriber",
  suite: "subscriber",
  adapter: "kafka",
  label: "Kafka 4.1, @platformatic/kafka, subscribing",
  features: [
    "redelivery",
    "durable",
    "keyOrder",
    "orderedRetry",
    "parallel",
    "competing",
    "foreign",
    "reconnect",
    "restart",
    "deadLetters",
  ],
};

export const targets: readonly Target[] = [
  nodePostgres,
  postgresJs,
  systemPostgres,
  pgBouncer,
  pglite,
  mongodb,
  inProcessPublisher,
  inProcessSubscriber,
  redisPublisherIoredis,
  redisPublisherNodeRedis,
  redisSubscriberIoredis,
  redisSubscriberNodeRedis,
  natsPublisher,
  natsSubscriber,
  kafkaPublisher,
  kafkaSubscriber,
  rabbitmqPublisher,
  rabbitmqSubscriber,
];

/** Where a run leaves its results. */
export function targetFile({ id }: Target): URL {
  return new URL(`.results/${id}.json`, import.meta.url);
}
