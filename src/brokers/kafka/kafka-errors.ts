import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, UnavailableError } from "../../core/errors.ts";

/** Numbers of the Kafka protocol, by what they say about a message. Whatever is in neither list failed. */
const REJECTED = new Set([
  10, // MESSAGE_TOO_LARGE
  17, // INVALID_TOPIC_EXCEPTION
  18, // RECORD_LIST_TOO_LARGE
  32, // INVALID_TIMESTAMP
  43, // UNSUPPORTED_FOR_MESSAGE_FORMAT
  87, // INVALID_RECORD
]);
const UNAVAILABLE = new Set([
  3, // UNKNOWN_TOPIC_OR_PARTITION: gone or not yet there; the next look at the topic decides
  5, // LEADER_NOT_AVAILABLE
  6, // NOT_LEADER_OR_FOLLOWER
  7, // REQUEST_TIMED_OUT
  8, // BROKER_NOT_AVAILABLE
  9, // REPLICA_NOT_AVAILABLE
  13, // NETWORK_EXCEPTION
  14, // COORDINATOR_LOAD_IN_PROGRESS
  15, // COORDINATOR_NOT_AVAILABLE
  16, // NOT_COORDINATOR
  19, // NOT_ENOUGH_REPLICAS
  20, // NOT_ENOUGH_REPLICAS_AFTER_APPEND
  29, // TOPIC_AUTHORIZATION_FAILED: an operator's slip must not turn messages into dead letters
  31, // CLUSTER_AUTHORIZATION_FAILED
  45, // OUT_OF_ORDER_SEQUENCE_NUMBER
  46, // DUPLICATE_SEQUENCE_NUMBER
  47, // INVALID_PRODUCER_EPOCH
  53, // TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  56, // KAFKA_STORAGE_ERROR
  59, // UNKNOWN_PRODUCER_ID
  74, // FENCED_LEADER_EPOCH
  89, // THROTTLING_QUOTA_EXCEEDED
  90, // PRODUCER_FENCED
]);

/** Of those, the ones that are about one partition or topic: the rest of the cluster may be well. */
const OF_TOPIC = new Set([3, 5, 6, 7, 9, 19, 20, 29, 56, 74]);

export type Failure = Exclude<PublishResult, { status: "published" | "held" }>;

/** What the answer for a partition of a topic says of the records that were sent there. */
export function failureOfCode(code: number, topic: string, error: unknown): Failure {
  if (REJECTED.has(code)) return { status: "rejected", error };
  if (!UNAVAILABLE.has(code)) return { status: "failed", error };
  return OF_TOPIC.has(code) ? { status: "unavailable", error, route: topic } : { status: "unavailable", error };
}

const KNOWN: Readonly<Record<number, string>> = {
  [-1]: "an unexpected error of the broker",
  1: "the offset is out of range",
  2: "what is stored is damaged",
  3: "the broker knows no such topic or partition",
  5: "it has no leader",
  6: "the broker no longer leads it",
  7: "it took too long",
  10: "the message is too large",
  19: "not enough replicas are in sync",
  20: "not enough replicas were in sync to keep it",
  29: "this client has no right to it",
  44: "it violates a policy of the broker",
  56: "the broker cannot use its disk",
  87: "the record is not valid",
  100: "the topic was deleted or made anew",
};

/** The meaning of a number of the protocol. */
export function meaningOf(code: number): string {
  return KNOWN[code] ?? `error ${code}`;
}

/** Something is wrong with one partition or topic, and others need not care. */
export function partitionError(what: string, reason: number | string): UnavailableError {
  return new UnavailableError(`Kafka, ${what}: ${typeof reason === "number" ? meaningOf(reason) : reason}`);
}

/** How a broker answered for one partition. */
export interface PartitionAnswer {
  readonly topic: string;
  readonly partition: number;
  readonly code: number;
  readonly text: string | undefined;
  /** Places in the batch of the records at fault, where the broker names them. */
  readonly records: readonly number[];
}

interface ProduceResponse {
  readonly responses?: readonly {
    readonly name: string;
    readonly partitionResponses: readonly {
      readonly index: number;
      readonly errorCode: number;
      readonly errorMessage?: string | null;
      readonly recordErrors?: readonly { readonly batchIndex: number }[];
    }[];
  }[];
}

/** Every partition that a failed produce got an answer for; a later try of the client overrides an earlier one. */
export function partitionAnswers(error: unknown): PartitionAnswer[] {
  const answers = new Map<string, PartitionAnswer>();
  for (const each of errorsWithin(error)) {
    const response = (each as { response?: ProduceResponse }).response;
    for (const { name, partitionResponses } of response?.responses ?? []) {
      for (const { index, errorCode, errorMessage, recordErrors = [] } of partitionResponses) {
        const key = `${name}:${index}`;
        if (answers.get(key)?.code === 0) continue;
        answers.set(key, {
          topic: name,
          partition: index,
          code: errorCode,
          text: errorMessage ?? undefined,
          records: recordErrors.map(({ batchIndex }) => batchIndex),
        });
      }
    }
  }
  return [...answers.values()];
}

/** The broker looked at the records and refused them; any other error is no judgement of these records. */
export function isRefusal(error: unknown): boolean {
  return partitionAnswers(error).some(({ code }) => REJECTED.has(code));
}

/** An error and all it is made of, depth first. */
export function* errorsWithin(error: unknown): Generator<object> {
  if (typeof error !== "object" || error === null) return;
  yield error;
  const { errors, cause } = error as { errors?: unknown; cause?: unknown };
  if (Array.isArray(errors)) for (const each of errors) yield* errorsWithin(each);
  yield* errorsWithin(cause);
}

/** What the broker answered, where a part of it makes the client take the whole for a failure. */
export function responseOf(error: unknown): object | undefined {
  for (const each of errorsWithin(error)) {
    const { response } = each as { response?: unknown };
    if (typeof response === "object" && response !== null) return response;
  }
  return undefined;
}

interface TopicsResponse {
  readonly topics?: readonly {
    readonly name: string | null;
    readonly errorCode?: number;
    readonly partitions?: readonly { readonly partitionIndex: number; readonly errorCode: number }[];
  }[];
}

/** Topics that keep the client from finding its way to any of a list: missing, or without a leader for a partition. */
export function brokenTopics(error: unknown): Map<string, UnavailableError> {
  const broken = new Map<string, UnavailableError>();
  for (const each of errorsWithin(error)) {
    const missing = /^Unknown topic (\S+)\.$/.exec(each instanceof Error ? each.message : "")?.[1];
    if (missing !== undefined) broken.set(missing, partitionError(`the topic ${missing}`, 3));
    const { response } = each as { response?: TopicsResponse };
    for (const { name, errorCode = 0, partitions = [] } of response?.topics ?? []) {
      if (name === null) continue;
      const lame = partitions.find((partition) => partition.errorCode !== 0);
      if (errorCode !== 0) broken.set(name, partitionError(`the topic ${name}`, errorCode));
      else if (lame !== undefined) {
        broken.set(name, partitionError(`${name}, partition ${lame.partitionIndex}`, lame.errorCode));
      }
    }
  }
  return broken;
}

export function hasApiError(error: unknown, ...ids: readonly string[]): boolean {
  return [...errorsWithin(error)].some((each) => ids.includes(String((each as { apiId?: unknown }).apiId)));
}

const CLIENT_CODES = [
  "PLT_KFK_NETWORK",
  "PLT_KFK_TIMEOUT",
  "PLT_KFK_AUTHENTICATION",
  "PLT_KFK_USER",
  "PLT_KFK_PROTOCOL",
];

/** The broker has answered, without an error, and the client makes nothing of it. */
export function isUnreadable(error: unknown): boolean {
  return ![...errorsWithin(error)].some((each) => CLIENT_CODES.includes(String((each as { code?: unknown }).code)));
}

export function isUnknownTopic(error: unknown): boolean {
  if (hasApiError(error, "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION")) return true;
  return error instanceof Error && error.message.startsWith("Unknown topic ");
}

/** One error that says what is wrong, and with what, whatever tree of errors the client made of it. */
export function explain(error: unknown, what?: string): UnavailableError {
  const all = [...errorsWithin(error)];
  const refused = all.some((each) => (each as { code?: unknown }).code === "PLT_KFK_AUTHENTICATION");
  if (refused) {
    return new UnavailableError("Kafka refused the credentials of this client", {
      field: "sasl",
      fix: "Check mechanism, username and password in the client's sasl option",
      cause: error,
    });
  }
  const leaf = all.findLast((each) => each instanceof Error);
  const text = leaf instanceof Error && leaf.message !== "" ? leaf.message : String(error);
  return new UnavailableError(`Kafka is not available${what === undefined ? "" : ` for ${what}`}: ${text}`, {
    cause: error,
  });
}

export function unknownTopic(topic: string, option: string): PermanentError {
  return new PermanentError(`Kafka has no topic "${topic}"`, {
    field: "topic",
    fix: `Create it, or set ${option}: { admin, partitions } to have it created`,
  });
}
