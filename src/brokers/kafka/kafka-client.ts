import { invalidOption, requireMethods } from "../../adapter/index.ts";

/** The parts of `@platformatic/kafka` (2.12 and later) that are used here, by shape: nothing is imported from it. */

export interface KafkaRecordToSend {
  topic: string;
  partition?: number;
  key?: Buffer;
  /** Without one it is a tombstone. */
  value?: Buffer;
  headers?: Map<Buffer, Buffer>;
  timestamp?: bigint;
}

export interface KafkaMetadata {
  readonly topics: ReadonlyMap<string, KafkaTopic>;
}

export interface KafkaTopic {
  readonly id: string;
  readonly partitionsCount: number;
  readonly partitions: readonly { readonly leader: number; readonly leaderEpoch: number }[];
}

export interface KafkaMetadataOptions {
  topics: string[];
  autocreateTopics?: boolean;
  forceUpdate?: boolean;
  retries?: number;
}

export type KafkaCompression = "none" | "gzip" | "snappy" | "lz4" | "zstd";

export interface KafkaSendOptions {
  messages: KafkaRecordToSend[];
  acks?: number;
  idempotent?: boolean;
  compression?: KafkaCompression;
  autocreateTopics?: boolean;
}

/** `new Producer({ clientId, bootstrapBrokers, idempotent: true, retries: 3, retryDelay: 100 })`, without serializers. */
/** Records that go to Kafka together. */
export interface KafkaRecords {
  readonly messages: KafkaRecordToSend[];
  readonly compression?: KafkaCompression;
}

export interface KafkaProducer {
  send(options: KafkaSendOptions): Promise<unknown>;
  metadata(options: KafkaMetadataOptions): Promise<KafkaMetadata>;
  close(): Promise<void>;
}

export interface KafkaTransaction {
  send(options: { messages: KafkaRecordToSend[]; acks?: number; compression?: KafkaCompression }): Promise<unknown>;
  addConsumer(consumer: never): Promise<unknown>;
  commit(): Promise<unknown>;
  abort(): Promise<unknown>;
  cancel(): Promise<unknown>;
}

/** `new Producer({ clientId, bootstrapBrokers, idempotent: true, transactionalId, retries: 5, retryDelay: 20 })`. */
export interface KafkaTransactionalProducer extends Omit<KafkaProducer, "send"> {
  /** Known once a transaction has begun. */
  readonly producerId: bigint | undefined;
  readonly producerEpoch: number | undefined;
  beginTransaction(options: { producerId: bigint; producerEpoch: number }): Promise<KafkaTransaction>;
}

/** `new Admin({ clientId, bootstrapBrokers })`. */
export interface KafkaAdmin {
  createTopics(options: {
    topics: string[];
    partitions?: number;
    replicas?: number;
    configs?: { name: string; value: string }[];
  }): Promise<unknown>;
}

export interface KafkaGroupOptions {
  sessionTimeout?: number;
  rebalanceTimeout?: number;
  heartbeatInterval?: number;
  /** Awaited before every request to join: where work in hand can end before the partitions go to others. */
  protocolsMetadata?: () => Promise<Buffer>;
}

export interface KafkaFetchOptions {
  node: number;
  maxWaitTime?: number;
  minBytes?: number;
  maxBytes?: number;
  isolationLevel?: 0 | 1;
  topics: {
    topicId: string;
    partitions: {
      partition: number;
      currentLeaderEpoch: number;
      fetchOffset: bigint;
      lastFetchedEpoch: number;
      partitionMaxBytes: number;
    }[];
  }[];
}

export interface KafkaFetchResponse {
  readonly responses: readonly { readonly topicId: string; readonly partitions: readonly FetchedPartition[] }[];
}

export interface FetchedPartition {
  readonly partitionIndex: number;
  readonly errorCode: number;
  /** Set when what was fetched last is not in the log any more: where what both have in common ends. */
  readonly divergingEpoch?: { readonly epoch: number; readonly endOffset: bigint };
  readonly abortedTransactions?: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[] | null;
  readonly records?: readonly FetchedBatch[] | null;
}

export interface FetchedBatch {
  readonly firstOffset: bigint;
  readonly lastOffsetDelta: number;
  readonly partitionLeaderEpoch: number;
  readonly attributes: number;
  readonly producerId: bigint;
  readonly records: readonly {
    readonly offsetDelta: number;
    readonly key: Buffer | null;
    readonly value: Buffer | null;
    readonly headers: readonly (readonly [Buffer | null, Buffer | null])[];
  }[];
}

export interface KafkaAssignment {
  readonly topic: string;
  readonly partitions: readonly number[];
}

/** `new Consumer({ clientId, groupId, bootstrapBrokers, retries: false })`. */
export interface KafkaConsumer {
  readonly groupId: string;
  readonly memberId: string | null;
  readonly generationId: number;
  readonly assignments: readonly KafkaAssignment[] | null;
  readonly topics: { trackAll(...topics: string[]): unknown; untrackAll(...topics: string[]): unknown };
  metadata(options: KafkaMetadataOptions): Promise<KafkaMetadata>;
  joinGroup(options: KafkaGroupOptions): Promise<unknown>;
  leaveGroup(): Promise<unknown>;
  findGroupCoordinator(): Promise<number>;
  fetch(options: KafkaFetchOptions): Promise<KafkaFetchResponse>;
  connectToBrokers(nodes: number[]): Promise<ReadonlyMap<number, unknown>>;
  listOffsets(options: {
    topics: string[];
    partitions?: Record<string, number[]>;
    timestamp?: bigint;
  }): Promise<ReadonlyMap<string, readonly bigint[]>>;
  on(event: "consumer:group:join" | "consumer:heartbeat:end" | "error", listener: (error: Error) => void): unknown;
  off(event: "consumer:group:join" | "consumer:heartbeat:end" | "error", listener: (error: Error) => void): unknown;
}

const OPTIONS = "plt.kafka.base.options";
const GET_API = "plt.kafka.base.getApi";

/** What a client was built with, as far as it lets us see. */
export function settingsOf(client: object): Readonly<Record<string, unknown>> {
  const settings = internalOf(client, OPTIONS);
  return typeof settings === "object" && settings !== null ? (settings as Record<string, unknown>) : {};
}

/** What a client keeps under a symbol. */
function internalOf(client: object, description: string): unknown {
  for (let at: object | null = client; at !== null; at = Object.getPrototypeOf(at) as object | null) {
    const symbol = Object.getOwnPropertySymbols(at).find((one) => one.description === description);
    if (symbol !== undefined) return Reflect.get(client, symbol);
  }
  return undefined;
}

type Answer = (error: Error | null | undefined, result?: unknown) => void;
type Api = (connection: unknown, ...args: readonly unknown[]) => void;
type GetApi = (name: string, answer: (error: Error | null, api?: Api) => void) => void;

/** One request to a broker, by the name of the protocol and in a version that both sides know. */
export async function callBroker(
  client: Pick<KafkaConsumer, "connectToBrokers">,
  node: number,
  name: string,
  args: readonly unknown[],
): Promise<unknown> {
  const connection = (await client.connectToBrokers([node])).get(node);
  if (connection === undefined) throw new Error(`there is no broker ${node}`);
  const getApi = internalOf(client, GET_API) as GetApi;
  const api = await new Promise<Api>((resolve, reject) => {
    getApi.call(client, name, (error, found) => (found === undefined ? reject(error) : resolve(found)));
  });
  return new Promise((resolve, reject) => {
    const answer: Answer = (error, result) => (error == null ? resolve(result) : reject(error));
    api(connection, ...args, answer);
  });
}

/** Throws `invalid_option` when a client lacks a method, naming what to pass. */
export function requireClient(of: string, option: string, client: unknown, methods: readonly string[]): void {
  const kind = `${option[0]?.toUpperCase()}${option.slice(1)}`;
  const fix = `Pass a ${kind} of @platformatic/kafka 2.12 or later: new ${kind}({ clientId, bootstrapBrokers, … })`;
  requireMethods(of, option, client, methods as readonly never[], fix);
}

/** Bytes must go through as they are: a string serializer would turn each of ours into nothing. */
export function requireBytes(of: string, option: string, client: object): void {
  const settings = settingsOf(client);
  const converting = ["serializers", "beforeSerialization", "registry"].find((name) => settings[name] !== undefined);
  if (converting === undefined) return;
  const fix = `Give txbox a ${option} of its own, without ${converting}`;
  throw invalidOption(of, option, `the ${option} has ${converting}, which would change what is sent`, fix);
}

export function requireProducer(of: string, producer: unknown): KafkaProducer {
  requireClient(of, "producer", producer, ["send", "metadata", "close"]);
  requireBytes(of, "producer", producer as object);
  return producer as KafkaProducer;
}

export function requireTransactional(of: string, producer: unknown, transactionalId: string): void {
  requireClient(of, "producer", producer, ["beginTransaction", "metadata", "close"]);
  requireBytes(of, "producer", producer as object);
  const settings = settingsOf(producer as object);
  if (settings["transactionalId"] !== undefined && settings["transactionalId"] !== transactionalId) {
    const fix = "Pass producer: (transactionalId) => new Producer({ …, idempotent: true, transactionalId })";
    throw invalidOption(of, "producer", "the producer has another transactionalId than it was asked for", fix);
  }
}

const CONSUMER_METHODS = [
  "metadata",
  "joinGroup",
  "leaveGroup",
  "findGroupCoordinator",
  "connectToBrokers",
  "fetch",
  "listOffsets",
  "on",
  "off",
];

export function requireConsumer(of: string, consumer: unknown): KafkaConsumer {
  requireClient(of, "consumer", consumer, CONSUMER_METHODS);
  if (typeof internalOf(consumer as object, GET_API) !== "function") {
    const fix = "Use @platformatic/kafka 2.12, or look for a newer txbox";
    throw invalidOption(of, "consumer", "the consumer is of a version that txbox does not know", fix);
  }
  const { retries, groupProtocol } = settingsOf(consumer as object);
  if (groupProtocol === "consumer") {
    const fix = 'Build it with groupProtocol: "classic", which lets messages in hand end before their partitions move';
    throw invalidOption(of, "consumer", 'the consumer uses the group protocol "consumer"', fix);
  }
  if (typeof retries === "number" && retries > 0) {
    const fix = "Build it with retries: false; else it commits offsets of partitions that are another's by then";
    throw invalidOption(of, "consumer", `the consumer retries by itself (retries: ${retries})`, fix);
  }
  return consumer as KafkaConsumer;
}
