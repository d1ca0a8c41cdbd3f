import type { SubscriberSettings } from "../../../adapter/index.ts";
import { backoffMs } from "../../../core/backoff.ts";
import { runHandling } from "../../../core/causation.ts";
import { decodePayload } from "../../../core/codec.ts";
import { describeError, errorCode, PermanentError } from "../../../core/errors.ts";
import type { HandledMessage, Message } from "../../../core/message.ts";
import { failureOf } from "../../../core/publish-each.ts";
import type { DeadLetterForm } from "../dead-letter-forms.ts";
import type { KafkaRecords, KafkaRecordToSend } from "../kafka-client.ts";
import { isRefusal, type Failure } from "../kafka-errors.ts";
import { openRecord, placeId, type KafkaRecord } from "../kafka-envelope.ts";
import { outputMessage, type PipelineOutput } from "./pipeline-output.ts";

export type PipelineHandler = (
  message: HandledMessage,
  send: (output: PipelineOutput) => void,
  signal: AbortSignal,
) => Promise<void> | void;

export interface WorkerHooks {
  readonly group: string;
  readonly handle: PipelineHandler;
  readonly settings: SubscriberSettings;
  readonly maxBatch: number;
  /** Where outputs go. Throws a PermanentError when there is no such topic. */
  place(outputs: readonly Message[]): Promise<KafkaRecordToSend[]>;
  /** Outputs and the offset of the last input, in one transaction. */
  write(outputs: readonly KafkaRecords[], last: KafkaRecord): Promise<void>;
  /** The transaction may or may not be committed: begins afresh where the group says. */
  reset(error: unknown): Promise<void>;
  /** A record that is given up as a dead letter, in the forms that it can have. */
  forms(record: KafkaRecord, error: unknown, attempts: number): Promise<DeadLetterForm[]>;
  /** These are in the queue no more. */
  taken(records: readonly KafkaRecord[]): void;
}

/** Processes one partition, in order: handlers first, then all they sent and their offset in one transaction. */
export class PartitionWorker {
  readonly #hooks: WorkerHooks;
  readonly #ending: AbortSignal;
  readonly #lost: AbortSignal;
  #queue: KafkaRecord[] = [];
  /** Of the first in the queue. */
  #attempts = 0;
  #outages = 0;
  /** How many are still to be tried one by one, because Kafka refused what some of them sent. */
  #careful = 0;
  /** A record that is to be a dead letter, why, and how many of its forms Kafka has refused. */
  #doomed: { place: string; error: unknown; attempts: number; refused: number } | undefined;
  /** Changes when the queue is dropped: what was begun with it counts no more. */
  #queueNumber = 0;
  #working: Promise<void> | undefined;

  constructor(hooks: WorkerHooks, ending: AbortSignal, lost: AbortSignal) {
    this.#hooks = hooks;
    this.#ending = ending;
    this.#lost = lost;
  }

  /** Settles when nothing is being processed. */
  get idle(): Promise<void> {
    return this.#working ?? Promise.resolve();
  }

  push(records: readonly KafkaRecord[]): void {
    for (const record of records) this.#queue.push(record);
    if (this.#queue.length > 0) this.#working ??= this.#work().finally(() => (this.#working = undefined));
  }

  /** Forgets what is queued. */
  clear(): void {
    this.#hooks.taken(this.#queue);
    this.#queue = [];
    this.#queueNumber++;
    this.#attempts = 0;
  }

  async #work(): Promise<void> {
    while (this.#queue.length > 0 && !this.#ending.aborted) {
      const queue = this.#queueNumber;
      const { outputs, done, failure } = await this.#handleSome();
      if (this.#lost.aborted) return;
      if (queue !== this.#queueNumber) continue;
      if (done > 0 && !(await this.#write(outputs.length === 0 ? [] : [{ messages: outputs }], done))) continue;
      if (failure !== undefined && !this.#ending.aborted) await this.#failed(failure);
    }
  }

  /** As many as go into one transaction, up to the first that fails: what that one sent is dropped. */
  async #handleSome(): Promise<{ outputs: KafkaRecordToSend[]; done: number; failure: Failure | undefined }> {
    const outputs: KafkaRecordToSend[] = [];
    const batch = this.#queue.slice(0, this.#careful > 0 ? 1 : this.#hooks.maxBatch);
    for (let done = 0; done < batch.length; done++) {
      if (this.#ending.aborted && done > 0) return { outputs, done, failure: undefined };
      try {
        outputs.push(...(await this.#handle(batch[done]!)));
      } catch (error) {
        const failure =
          errorCode(error) === "invalid_message" ? { status: "rejected" as const, error } : failureOf(error);
        return { outputs, done, failure };
      }
    }
    return { outputs, done: batch.length, failure: undefined };
  }

  async #handle(record: KafkaRecord): Promise<KafkaRecordToSend[]> {
    const doomed = this.#doomedAt(record);
    if (doomed !== undefined) throw doomed.error;
    const opened = openRecord(record);
    const id = opened.id ?? placeId(record);
    const type = opened.type ?? record.topic;
    const message = { ...opened, id, type, payload: decodePayload(opened.body, opened.headers.contentType) };
    const outputs: Message[] = [];
    const send = (output: PipelineOutput): void => {
      outputs.push(outputMessage(output, record, outputs.length));
    };
    const context = { module: this.#hooks.group, id, type, headers: opened.headers };
    await runHandling(context, async () => this.#hooks.handle(message, send, this.#lost));
    return this.#hooks.place(outputs);
  }

  /** False when the transaction is not known to be committed, or the queue is another by now. */
  async #write(outputs: readonly KafkaRecords[], done: number): Promise<boolean> {
    const last = this.#queue[done - 1]!;
    const queue = this.#queueNumber;
    try {
      await this.#hooks.write(outputs, last);
    } catch (error) {
      if (isRefusal(error)) {
        if (done === 1) this.#refused(last, error);
        this.#careful = this.#hooks.maxBatch;
      }
      this.clear();
      await this.#hooks.reset(error);
      return false;
    }
    if (this.#doomedAt(last) !== undefined) this.#doomed = undefined;
    if (queue !== this.#queueNumber) return false;
    this.#hooks.taken(this.#queue.splice(0, done));
    this.#attempts = 0;
    this.#careful = Math.max(0, this.#careful - done);
    return true;
  }

  /** Kafka has refused what the handler sent for a record, or the record itself as a dead letter. */
  #refused(record: KafkaRecord, cause: unknown): void {
    const doomed = this.#doomedAt(record);
    if (doomed !== undefined) {
      doomed.refused++;
      return;
    }
    const error = new PermanentError("Kafka refused what the handler sent", { cause });
    this.#doomed = { place: placeId(record), error, attempts: 1, refused: 0 };
  }

  #doomedAt(record: KafkaRecord) {
    return this.#doomed !== undefined && this.#doomed.place === placeId(record) ? this.#doomed : undefined;
  }

  async #failed({ status, error }: Failure): Promise<void> {
    const { group: consumer, settings } = this.#hooks;
    const record = this.#queue[0]!;
    if (status === "unavailable") {
      const delayMs = Math.max(10, backoffMs(++this.#outages, settings.outageBackoff));
      settings.emit({ type: "outage", consumer, error: describeError(error), attempt: this.#outages, delayMs });
      await settings.clock.sleep(delayMs, this.#ending);
      return;
    }
    if (this.#outages > 0) settings.emit({ type: "recovered", consumer });
    this.#outages = 0;
    const doomed = this.#doomedAt(record);
    const attempts = doomed?.attempts ?? ++this.#attempts;
    const about = { consumer, id: `${record.topic}/${record.partition}/${record.offset}`, attempts };
    if (doomed !== undefined || status === "rejected" || attempts >= settings.maxAttempts) {
      this.#doomed = { place: placeId(record), error, attempts, refused: doomed?.refused ?? 0 };
      if (await this.#moveToDeadLetters(record, this.#doomed))
        settings.emit({ type: "dead", ...about, error: describeError(error) });
      return;
    }
    const delayMs = backoffMs(attempts, settings.backoff);
    settings.emit({ type: "retry", ...about, delayMs, error: describeError(error) });
    await settings.clock.sleep(delayMs, this.#ending);
  }

  /** Puts it aside in the first form that Kafka has not refused. */
  async #moveToDeadLetters(
    record: KafkaRecord,
    { error, attempts, refused }: { error: unknown; attempts: number; refused: number },
  ) {
    try {
      const queue = this.#queueNumber;
      const forms = await this.#hooks.forms(record, error, attempts);
      if (queue !== this.#queueNumber) return false;
      return await this.#write(forms[Math.min(refused, forms.length - 1)]!, 1);
    } catch (reason) {
      await this.#failed({ status: "unavailable", error: reason });
      return false;
    }
  }
}
