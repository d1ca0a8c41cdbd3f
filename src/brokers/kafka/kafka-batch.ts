import { answerWithin, BatchResults, type Batch } from "../../adapter/index.ts";
import { NOT_TRIED, PUBLISHED } from "../../core/batch-results.ts";
import type { PublishResult } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import type { KafkaCompression, KafkaProducer, KafkaRecordToSend } from "./kafka-client.ts";
import {
  brokenTopics,
  explain,
  failureOfCode,
  meaningOf,
  partitionAnswers,
  type Failure,
  type PartitionAnswer,
} from "./kafka-errors.ts";

/** A message with its place. */
export interface Entry {
  /** Place in the batch that the relay gave. */
  readonly index: number;
  readonly record: KafkaRecordToSend & { partition: number };
  readonly size: number;
}

export interface KafkaBatchSettings {
  readonly producer: KafkaProducer;
  readonly compression: KafkaCompression | undefined;
  readonly maxBatchBytes: number;
  readonly timeoutMs: number;
}

/** What one partition gets: record batches in order, and the bytes of the last. */
interface PartitionQueue {
  readonly batches: Entry[][];
  bytes: number;
}

/** By topic and partition. */
type Queues = Map<string, (PartitionQueue | undefined)[]>;

/**
 * Sends a batch: one request per broker, one record batch per partition, which Kafka takes or refuses as a whole. So
 * nothing of a key can overtake another message of its batch. What exceeds a record batch follows when the first part
 * is confirmed; a partition that failed gets nothing more; a refused record batch is narrowed down to the message at fault.
 */
export class KafkaBatch {
  readonly #settings: KafkaBatchSettings;
  readonly #batch: Pick<Batch, "messages" | "signal" | "mayBegin">;
  readonly #results: BatchResults;
  #notTried: PublishResult = NOT_TRIED;
  /** Record batches by partition, in order; the first of each goes next. */
  #queues: Queues = new Map();
  /** What follows when all of that is through. */
  readonly #later: Queues[] = [];
  /** Settles when the client is done with what it was given last, even if no code waits for that any more. */
  idle: Promise<unknown> = Promise.resolve();

  constructor(batch: Pick<Batch, "messages" | "signal" | "mayBegin">, settings: KafkaBatchSettings) {
    this.#batch = batch;
    this.#settings = settings;
    this.#results = new BatchResults(batch.messages);
  }

  /** In the order of the batch, with `refuse`. */
  add(entry: Entry): void {
    const { topic, partition } = entry.record;
    const queues = this.#later.at(-1) ?? this.#queues;
    let partitions = queues.get(topic);
    if (partitions === undefined) queues.set(topic, (partitions = []));
    const queue = (partitions[partition] ??= { batches: [[]], bytes: 0 });
    queue.bytes += entry.size;
    const last = queue.batches.at(-1)!;
    if (queue.bytes <= this.#settings.maxBatchBytes || last.length === 0) {
      last.push(entry);
      return;
    }
    queue.batches.push([entry]);
    queue.bytes = entry.size;
  }

  /** What is added from now on follows when all before is through: one key is about to go to two partitions. */
  barrier(): void {
    this.#later.push(new Map());
  }

  /** A message that cannot be sent, so that nothing of its key follows. */
  refuse(index: number, failure: Failure): void {
    if (!this.#results.isHeld(index)) this.#results.set(index, failure);
  }

  /** `onConfirmed` is called whenever Kafka has answered. */
  async run(onConfirmed: () => void = () => undefined): Promise<PublishResult[]> {
    for (;;) {
      const wave = this.#nextWave();
      if (wave.length === 0) {
        const queues = this.#later.shift();
        if (queues === undefined) break;
        this.#queues = queues;
        continue;
      }
      // Asked before each request: it may be long since the last one.
      if (!this.#batch.mayBegin()) break;
      const outcome = await this.#send(wave);
      if (outcome === "given up") break;
      onConfirmed();
      for (const entries of wave) {
        if (outcome === undefined) this.#settle(entries);
        else this.#judge(entries, outcome);
      }
    }
    return this.#results.all(this.#notTried);
  }

  /** The next record batch of each partition, without what waits behind a failed message of its key. */
  #nextWave(): Entry[][] {
    const wave: Entry[][] = [];
    for (const partitions of this.#queues.values()) {
      for (const queue of partitions) {
        if (queue === undefined) continue;
        const { batches } = queue;
        let free: Entry[] = [];
        while (batches.length > 0 && free.length === 0) {
          free = batches.shift()!;
          if (this.#results.hasFailures) free = free.filter(({ index }) => !this.#results.isHeld(index));
        }
        if (free.length > 0) wave.push(free);
      }
    }
    return wave;
  }

  /** Undefined: all of it is confirmed. Otherwise what is known, by partition. */
  async #send(wave: readonly Entry[][]): Promise<Map<string, Verdict> | "given up" | undefined> {
    const { producer, compression, timeoutMs } = this.#settings;
    const messages = wave.flatMap((entries) => entries.map(({ record }) => record));
    const sending = producer
      .send({
        messages,
        acks: -1,
        idempotent: true,
        autocreateTopics: false,
        ...(compression === undefined ? {} : { compression }),
      })
      .then(
        () => undefined,
        (error: unknown) => verdicts(messages, error),
      );
    this.idle = sending;
    const { signal } = this.#batch;
    try {
      return await answerWithin(sending, timeoutMs, `Kafka did not confirm within ${timeoutMs} ms`, signal);
    } catch (error) {
      // What is not sent any more has the same reason.
      this.#notTried = { status: "unavailable", error };
      return "given up";
    }
  }

  #judge(entries: readonly Entry[], verdicts: ReadonlyMap<string, Verdict>): void {
    const { topic, partition } = entries[0]!.record;
    const { batches } = this.#queues.get(topic)![partition]!;
    const verdict = verdicts.get(`${topic}:${partition}`);
    if (verdict === undefined || verdict === "published") return this.#settle(entries);
    if (verdict === "again") {
      batches.unshift([...entries]);
      return;
    }
    const { failure, records } = verdict;
    if (failure.status === "unavailable") {
      // A topic that is out has taken none of them; otherwise each may have been written.
      this.#setAside(entries, failure, failure.route === undefined);
      for (const later of batches.splice(0)) this.#setAside(later, failure, false);
      return;
    }
    const named = records.filter((place) => place < entries.length).sort((a, b) => a - b);
    if (entries.length > 1 && named.length === 0) {
      const half = entries.length >> 1;
      batches.unshift(entries.slice(0, half), entries.slice(half));
      return;
    }
    const atFault = entries.length === 1 ? [0] : named;
    for (const place of atFault) this.refuse(entries[place]!.index, failure);
    batches.unshift(entries.filter((_, place) => !atFault.includes(place)));
  }

  /** Nothing is known of these, or they come after such: nothing of their keys may follow elsewhere. */
  #setAside(entries: readonly Entry[], failure: Failure, mayBeWritten: boolean): void {
    for (const { index } of entries) {
      if (mayBeWritten || !this.#results.isHeld(index)) this.#results.set(index, failure);
    }
  }

  #settle(entries: readonly Entry[]): void {
    for (const { index } of entries) this.#results.set(index, PUBLISHED);
  }
}

type Verdict = "published" | "again" | { readonly failure: Failure; readonly records: readonly number[] };

/** What an error says of each partition that was sent to. */
function verdicts(
  messages: readonly (KafkaRecordToSend & { partition: number })[],
  error: unknown,
): Map<string, Verdict> {
  const result = new Map<string, Verdict>();
  const broken = brokenTopics(error);
  const { produced } = error as { produced?: Produced };
  // One topic keeps the client from all others. What it has written before that may be written again.
  const isStuck = messages.some(({ topic }) => broken.has(topic));
  const unknown: Verdict = { failure: { status: "unavailable", error: explain(error) }, records: [] };
  for (const { topic, partition } of messages) {
    const reason = broken.get(topic);
    const failure: Verdict = { failure: { status: "unavailable", error: reason, route: topic }, records: [] };
    result.set(`${topic}:${partition}`, reason !== undefined ? failure : isStuck ? "again" : unknown);
  }
  for (const { topic, partition } of produced?.offsets ?? []) result.set(`${topic}:${partition}`, "published");
  for (const answer of partitionAnswers(error)) {
    const verdict: Verdict =
      answer.code === 0
        ? "published"
        : { failure: failureOfCode(answer.code, answer.topic, refusal(answer, error)), records: answer.records };
    result.set(`${answer.topic}:${answer.partition}`, verdict);
  }
  return result;
}

/** What brokers have confirmed while others failed. */
interface Produced {
  readonly offsets?: readonly { readonly topic: string; readonly partition: number }[];
}

function refusal({ topic, partition, code, text }: PartitionAnswer, cause: unknown): TxboxError {
  const why = text ?? meaningOf(code);
  const details = { cause, ...(code === 10 ? { fix: "Raise max.message.bytes of the topic, or send less" } : {}) };
  return new TxboxError("permanent", `Kafka refused it for ${topic}, partition ${partition}: ${why}`, details);
}
