import type { PublisherFeature, StoreFeature, SubscriberFeature } from "../../src/testing/index.ts";
import { everyPublisherFeature, everySubscriberFeature } from "../support/broker-features.ts";

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

const ONE_CONNECTION: readonly StoreFeature[] = [
  "savepoints",
  "log",
  "retention",
  "restore",
  "endings",
  "promptProgress",
];
const ALL: readonly StoreFeature[] = ["concurrency", "sharing", ...ONE_CONNECTION];
/** All, and transactions that are more than the connection they run on. */
const WITH_HANDLES: readonly StoreFeature[] = [...ALL, "ownHandles"];

function postgres(id: string, label: string, features = ALL): Target<StoreFeature> {
  return { id: `postgres-${id}`, suite: "store", adapter: "postgres", label, features };
}

export const nodePostgres: Target<StoreFeature> = postgres("node-postgres", "PostgreSQL 18, node-postgres");
export const postgresJs: Target<StoreFeature> = postgres("postgres-js", "PostgreSQL 18, postgres.js", WITH_HANDLES);
export const systemPostgres: Target<StoreFeature> = postgres("system", "PostgreSQL 15 (Debian), node-postgres");
export const pgBouncer: Target<StoreFeature> = postgres(
  "pgbouncer",
  "PostgreSQL 18 behind PgBouncer in transaction mode, node-postgres",
);
export const postgresBridge: Target<StoreFeature> = postgres(
  "bridge",
  "PostgreSQL 18, an ORM on node-postgres through a bridge",
  WITH_HANDLES,
);
export const pglite: Target<StoreFeature> = postgres("pglite", "PGlite: one connection, one process", [
  ...ONE_CONNECTION,
  "ownHandles",
]);

/** One process streams and the others stand by, so there is nothing to share; progress is written with the anchors. */
export const postgresByStream: Target<StoreFeature> = postgres(
  "wal",
  "PostgreSQL 18 by its log (WAL), node-postgres",
  ALL.filter((feature) => feature !== "sharing" && feature !== "promptProgress"),
);

export const mongodb: Target<StoreFeature> = {
  id: "mongodb-driver",
  suite: "store",
  adapter: "mongodb",
  label: "MongoDB 6 replica set, official driver",
  features: ["concurrency", "sharing", "endings", "promptProgress", "ownHandles"],
};

export const mongodbByStream: Target<StoreFeature> = {
  ...mongodb,
  id: "mongodb-change-stream",
  label: "MongoDB 6 replica set by change stream, official driver",
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

/** Publishing to a broker, every case. */
function publishing(adapter: string, label: string, id = adapter): Target<PublisherFeature> {
  const name = `${label}, publishing`;
  return { id: `${id}-publisher`, suite: "publisher", adapter, label: name, features: everyPublisherFeature };
}

/** To a broker that is there as a whole, or not at all. */
function withoutRoutes(target: Target<PublisherFeature>): Target<PublisherFeature> {
  return { ...target, features: target.features.filter((feature) => feature !== "routes") };
}

/** Subscribing to it, every case. */
function subscribing(adapter: string, label: string, id = adapter): Target<SubscriberFeature> {
  const name = `${label}, subscribing`;
  return { id: `${id}-subscriber`, suite: "subscriber", adapter, label: name, features: everySubscriberFeature };
}

const IOREDIS = ["redis", "Redis 7 (Debian), ioredis", "redis-ioredis"] as const;
const NODE_REDIS = ["redis", "Redis 7 (Debian), node-redis", "redis-node-redis"] as const;
const RABBITMQ = ["rabbitmq", "RabbitMQ 3.10, amqplib"] as const;
const NATS = ["nats", "NATS JetStream 2.9, @nats-io/transport-node"] as const;
const KAFKA = ["kafka", "Kafka 4.1, @platformatic/kafka"] as const;

export const redisPublisherIoredis: Target<PublisherFeature> = withoutRoutes(publishing(...IOREDIS));
export const redisPublisherNodeRedis: Target<PublisherFeature> = withoutRoutes(publishing(...NODE_REDIS));
export const redisSubscriberIoredis: Target<SubscriberFeature> = subscribing(...IOREDIS);
export const redisSubscriberNodeRedis: Target<SubscriberFeature> = subscribing(...NODE_REDIS);
export const rabbitmqPublisher: Target<PublisherFeature> = publishing(...RABBITMQ);
export const rabbitmqSubscriber: Target<SubscriberFeature> = subscribing(...RABBITMQ);
export const natsPublisher: Target<PublisherFeature> = withoutRoutes(publishing(...NATS));
export const natsSubscriber: Target<SubscriberFeature> = subscribing(...NATS);
export const kafkaPublisher: Target<PublisherFeature> = publishing(...KAFKA);
export const kafkaSubscriber: Target<SubscriberFeature> = subscribing(...KAFKA);

export const targets: readonly Target[] = [
  nodePostgres,
  postgresJs,
  systemPostgres,
  pgBouncer,
  postgresBridge,
  pglite,
  postgresByStream,
  mongodb,
  mongodbByStream,
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
