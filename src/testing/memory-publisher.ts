import { BatchResults } from "../core/batch-results.ts";
import type { Publisher, PublishResult } from "../core/contracts.ts";
import { PermanentError, UnavailableError } from "../core/errors.ts";
import { mayBegin } from "../core/may-begin.ts";
import type { Message } from "../core/message.ts";

/** What to do with a message: an error, `true` for one made up, or undefined to let it through. */
export type Verdict = (message: Message) => Error | boolean | undefined;

export interface MemoryPublisher extends Publisher {
  /** What went out, in order; repeats included. */
  readonly published: readonly Message[];
  /** Sizes of the batches that it was given. */
  readonly batches: readonly number[];
  /** These fail and may work later. */
  fail(which: Verdict): void;
  /** These can never work. */
  reject(which: Verdict): void;
  /** Everything is unavailable until `heal`. */
  goDown(error?: Error): void;
  /** Batches hang until `heal` or until their signal aborts. */
  hang(): void;
  /** Back to normal: everything goes through. */
  heal(): void;
  readonly closed: boolean;
}

export interface MemoryPublisherOptions {
  /** Default true: like a broker that stops a key at its first failure. */
  keepsKeyOrder?: boolean;
}

/** A broker in memory that can be told to fail, to reject, to be out or to hang. */
export function createMemoryPublisher({ keepsKeyOrder = true }: MemoryPublisherOptions = {}): MemoryPublisher {
  const published: Message[] = [];
  const batches: number[] = [];
  const none: Verdict = () => undefined;
  let [failing, rejecting] = [none, none];
  let down: Error | undefined;
  let hanging: PromiseWithResolvers<void> | undefined;
  let closed = false;

  function publishOne(message: Message): PublishResult {
    const rejected = errorOf(rejecting(message), () => new PermanentError("rejected"));
    const failed = errorOf(failing(message), () => new Error("failed"));
    if (rejected !== undefined) return { status: "rejected", error: rejected };
    if (failed !== undefined) return { status: "failed", error: failed };
    published.push(message);
    return { status: "published" };
  }

  return {
    keepsKeyOrder,
    published,
    batches,
    get closed() {
      return closed;
    },
    async publish(messages, signal, progress) {
      batches.push(messages.length);
      if (hanging !== undefined) await Promise.race([hanging.promise, aborted(signal)]);
      signal.throwIfAborted();
      if (closed) throw new UnavailableError("The publisher is closed");
      if (down !== undefined) throw down;
      const results = new BatchResults(messages);
      for (const [index, message] of messages.entries()) {
        if (!mayBegin(signal, progress)) break;
        if (!keepsKeyOrder || !results.isHeld(index)) results.set(index, publishOne(message));
      }
      return results.all();
    },
    fail: (which) => void (failing = which),
    reject: (which) => void (rejecting = which),
    goDown: (error = new UnavailableError("The broker is out")) => void (down = error),
    hang: () => void (hanging ??= Promise.withResolvers<void>()),
    heal() {
      [failing, rejecting, down] = [none, none, undefined];
      hanging?.resolve();
      hanging = undefined;
    },
    close() {
      closed = true;
      return Promise.resolve();
    },
  };
}

function errorOf(verdict: Error | boolean | undefined, standard: () => Error): Error | undefined {
  if (verdict instanceof Error) return verdict;
  return verdict === true ? standard() : undefined;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
