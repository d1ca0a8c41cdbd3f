export { createDatabase, type TestDatabase } from "./create-database.ts";
export { until, withDeadline } from "./deadline.ts";
export { freePort } from "./free-port.ts";
export type { PostgresSource } from "./postgres-binaries.ts";
export { findCommand, requireCommand } from "./require-command.ts";
export { mustRun, runCommand } from "./run-command.ts";
export { inCi, serverOrSkip, type ServerSlot } from "./server-or-skip.ts";
export { ServerUnavailableError } from "./server-unavailable-error.ts";
export { type NodeExit, type NodeProcess, spawnNode, type SpawnNodeOptions } from "./spawn-node.ts";
export { type ConnectRecord, type DebeziumEngine, debeziumJars, startDebezium } from "./start-debezium.ts";
export { type MongodbSet, startMongodbSet } from "./start-mongodb-set.ts";
export { type MongodbOptions, type MongodbServer, startMongodb } from "./start-mongodb.ts";
export { type KafkaOptions, type KafkaServer, startKafka } from "./start-kafka.ts";
export { type PgBouncerOptions, type PgBouncerServer, startPgBouncer } from "./start-pgbouncer.ts";
export { type PostgresOptions, type PostgresServer, startPostgres } from "./start-postgres.ts";
export { type PrometheusOptions, type PrometheusServer, startPrometheus } from "./start-prometheus.ts";
export { type RedisOptions, type RedisServer, startRedis } from "./start-redis.ts";
export { type RedisSentinelGroup, startRedisSentinel } from "./start-redis-sentinel.ts";
export { type NatsOptions, type NatsServer, startNats } from "./start-nats.ts";
export {
  RABBITMQ_MAX_MESSAGE_BYTES,
  type RabbitmqOptions,
  type RabbitmqServer,
  startRabbitmq,
} from "./start-rabbitmq.ts";
export { type RabbitmqCluster, startRabbitmqCluster } from "./start-rabbitmq-cluster.ts";
