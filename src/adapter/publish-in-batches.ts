import { NOT_TRIED, PUBLISHED } from "../core/batch-results.ts";
import { publishByKey } from "../core/by-key.ts";
import type { PublishResult } from "../core/contracts.ts";
import type { Message } from "../core/message.ts";
import { failureOf } from "../core/publish-each.ts";
import type { Batch } from "./create-publisher.ts";
import type { Refusals } from "./held-messages.ts";
import { inBatches, type BatchLimits } from "./in-batches.ts";

export interface InBatchesOptions<T> extends BatchLimits<T> {
  /** Requests on their way at once. Default 10. */
  readonly requests?: number;
  /** Where a message goes, such as the name of a queue: each request has one target. */
  readonly target: (message: Message) => string;
  /** The message as the broker takes it. What it throws is the result of the message, see `failureOf`. */
  readonly encode: (message: Message) => T;
  /**
   * One request: for each entry why it was refused, or undefined. When it rejects, no message is to blame: the whole
   * target is out, or the `route` of an UnavailableError; or none can ever go there, by a PermanentError.
   */
  readonly send: (target: string, entries: readonly T[]) => Promise<Refusals>;
}

/**
 * Publishes by requests that carry several messages and may be taken in part. A request has one message of a key: none
 * can overtake another that was refused.
 */
export function publishInBatches<T>(batch: Batch, options: InBatchesOptions<T>): Promise<PublishResult[]> {
  const { messages, kind = "new", signal, mayBegin } = batch;
  const { target: targetOf, encode, send, requests = 10, most } = options;
  const senders = new Map<string, (entry: T) => Promise<PublishResult>>();
  const senderTo = (target: string): ((entry: T) => Promise<PublishResult>) =>
    inBatches(options, async (entries) => {
      if (!mayBegin()) return entries.map(() => NOT_TRIED);
      try {
        const errors = await send(target, entries);
        return errors.map((error) => (error === undefined ? PUBLISHED : failureOf(error)));
      } catch (error) {
        const failure = failureOf(error);
        return entries.map(() => (failure.status === "failed" ? { status: "unavailable", error } : failure));
      }
    });
  const publishOne = async (message: Message): Promise<PublishResult> => {
    try {
      const target = targetOf(message);
      const add = senders.get(target) ?? senderTo(target);
      senders.set(target, add);
      return await add(encode(message));
    } catch (error) {
      return failureOf(error);
    }
  };
  return publishByKey(messages, publishOne, { concurrency: requests * most, signal, progress: { kind, mayBegin } });
}
