import type { Keyed } from "../../core/by-key.ts";
import type { PublishResult } from "../../core/contracts.ts";
import { TxboxError, UnavailableError } from "../../core/errors.ts";
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
import { settledWithin } from "./turns.ts";

/** A message with its place. */
export interface Entry {
  /** Place in the batch that the relay gave. */
  readonly index: number;
  /** Nothing of its key may overtake it. */
  readonly message: Keyed;
  readonly record: KafkaRecordToSend & { partition: number };
  readonly size: number;
}

export interface ProduceSettings {
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

const PUBLISHED: PublishResult = { status: "published" };
const NOT_TRIED: PublishResult = { status: "unavailable" };
const HELD: PublishResult = { status: "held" };

/**
 * Sends a batch: one request per broker, one record batch per partition, which Kafka takes or refuses as a whole. So
 * nothing of a key can overtake another message of its batch. What exceeds a record batch follows when the first part
 * is confirmed; a partition that failed gets nothing more; a refused record batch is narrowed down to the message at fault.
 */
export class ProduceBatch {
  readonly #settings: ProduceSettings;
  readonly #signal: AbortSignal;
  readonly #results: PublishResult[];
  /** Record batches by partition, in order; the first of each goes next. */
  #queues: Queues = new Map();
  /** What follows when all of that is through. */
  readonly #later: Queues[] = [];
  /** Keys with a message that did not go through, and which that was. */
  readonly #failed = new Map<string, number>();
  /** Settles when the client is done with what it was given last, though nobody may wait for it any more. */
  idle: Promise<unknown> = Promise.resolve();

  constructor(count: number, settings: ProduceSettings, signal: AbortSignal) {
    this.#settings = settings;
    this.#signal = signal;
    this.#results = Array.from({ length: count }, () => NOT_TRIED);
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
  refuse(index: number, message: Keyed, failure: Failure): void {
    const order = orderOf(message);
    if (this.#holdBack(index, order)) return;
    this.#results[index] = failure;
    if (order !== undefined) this.#failed.set(order, index);
  }

  async run(): Promise<PublishResult[]> {
    for (;;) {
      const wave = this.#nextWave();
      if (wave.length === 0) {
        const queues = this.#later.shift();
        if (queues === undefined) break;
        this.#queues = queues;
        continue;
      }
      const outcome = await this.#send(wave);
      if (outcome === "given up") break;
      for (const entries of wave) {
        if (outcome === undefined) this.#settle(entries, PUBLISHED);
        else this.#judge(entries, outcome);
      }
    }
    return this.#results;
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
          if (this.#failed.size > 0)
            free = free.filter(({ index, message }) => !this.#holdBack(index, orderOf(message)));
        }
        if (free.length > 0) wave.push(free);
      }
    }
    return wave;
  }

  /** True when an earlier message of its key did not go through; that is its result then. */
  #holdBack(index: number, order: string | undefined): boolean {
    if (order === undefined) return false;
    const failed = this.#failed.get(order);
    if (failed === undefined || failed >= index) return false;
    this.#results[index] = HELD;
    return true;
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
    const end = await settledWithin(sending, timeoutMs, this.#signal);
    if (end === "aborted") return "given up";
    if (end !== "late") return end;
    const error = new UnavailableError(`Kafka did not confirm within ${timeoutMs} ms`);
    // What is not sent any more has the same reason.
    for (const [i, result] of this.#results.entries()) {
      if (result === NOT_TRIED) this.#results[i] = { status: "unavailable", error };
    }
    return "given up";
  }

  #judge(entries: readonly Entry[], verdicts: ReadonlyMap<string, Verdict>): void {
    const { topic, partition } = entries[0]!.record;
    const { batches } = this.#queues.get(topic)![partition]!;
    const verdict = verdicts.get(`${topic}:${partition}`);
    if (verdict === undefined || verdict === "published") return this.#settle(entries, PUBLISHED);
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
    for (const place of atFault) this.refuse(entries[place]!.index, entries[place]!.message, failure);
    batches.unshift(entries.filter((_, place) => !atFault.includes(place)));
  }

  /** Nothing is known of these, or they come after such: nothing of their keys may follow elsewhere. */
  #setAside(entries: readonly Entry[], failure: Failure, mayBeWritten: boolean): void {
    for (const { index, message } of entries) {
      const order = orderOf(message);
      if (!mayBeWritten && this.#holdBack(index, order)) continue;
      this.#results[index] = failure;
      if (order !== undefined && !this.#failed.has(order)) this.#failed.set(order, index);
    }
  }

  #settle(entries: readonly Entry[], result: PublishResult): void {
    for (const { index } of entries) this.#results[index] = result;
  }
}

/** Stream and key, for what must not be overtaken; undefined: nothing. */
export function orderOf({ stream, key }: Keyed): string | undefined {
  return key == null ? undefined : `${stream}\0${key}`;
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
  // One topic keeps the client from all others. What it may have written before it saw that is at worst repeated.
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
