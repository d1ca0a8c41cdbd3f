import { NOT_TRIED } from "../core/batch-results.ts";
import type { ClaimKind, Publisher, PublishProgress, PublishResult } from "../core/contracts.ts";
import { UnavailableError } from "../core/errors.ts";
import { mayBegin } from "../core/may-begin.ts";
import type { Message } from "../core/message.ts";
import { settledWithin } from "../core/settled-within.ts";

/** One batch on its way. */
export interface Batch {
  /** At least one. */
  readonly messages: readonly Message[];
  /** Sent for the first time, or again after a failure; undefined where the caller did not say. */
  readonly kind: ClaimKind | undefined;
  /** Aborts when nothing is to be waited for any longer; `givenUp(signal)` is the error to report then. */
  readonly signal: AbortSignal;
  /** False once the lease is over, a stop has reached its deadline, or the publisher is being closed. Ask before each send. */
  readonly mayBegin: () => boolean;
  /** Tells a result before the batch is through; undefined where the relay does not ask for that. */
  readonly onResult: PublishProgress["onResult"] | undefined;
}

export interface PublisherParts {
  /** True: within a batch, once a message failed no later one of its key goes out. */
  readonly keepsKeyOrder: boolean;
  /** What it publishes to, as traces and metrics name it: "rabbitmq". */
  readonly system?: string;
  /** One result per message. A thrown error means that the target is out and nothing is known of any message. */
  publish(batch: Batch): Promise<readonly PublishResult[]>;
  prepare?(messages: readonly Message[]): void;
  /** Called once, when no batch is under way any more. Ends what the publisher has opened, never the application's client. */
  close?(): Promise<void> | void;
}

/** How long `close` waits for batches under way, before their signals abort. */
const CLOSE_MS = 3000;

/**
 * A publisher from the function that sends a batch. Empty batches, batches whose lease is over already, and `close` are
 * taken care of: it lets what is under way end, begins nothing more, and may be called twice.
 */
export function createPublisher(parts: PublisherParts): Publisher {
  const underWay = new Set<Promise<unknown>>();
  const giveUp = new AbortController();
  let closing: Promise<void> | undefined;

  async function send(messages: readonly Message[], outer: AbortSignal, progress: PublishProgress | undefined) {
    const own = new AbortController();
    const abort = (): void => own.abort(outer.reason);
    const end = (): void => own.abort(giveUp.signal.reason);
    outer.addEventListener("abort", abort);
    giveUp.signal.addEventListener("abort", end);
    // Once it was over it stays so, also when the lease is renewed meanwhile: results must agree with what was begun.
    let over = false;
    try {
      return await parts.publish({
        messages,
        kind: progress?.kind,
        signal: own.signal,
        mayBegin: () => !(over ||= closing !== undefined || !mayBegin(outer, progress)),
        onResult: progress?.onResult?.bind(progress),
      });
    } finally {
      outer.removeEventListener("abort", abort);
      giveUp.signal.removeEventListener("abort", end);
    }
  }

  async function close(): Promise<void> {
    const ended = Promise.allSettled(underWay);
    await settledWithin(ended, CLOSE_MS);
    giveUp.abort(new Error("the publisher is closed"));
    await settledWithin(ended, CLOSE_MS);
    await parts.close?.();
  }

  return {
    keepsKeyOrder: parts.keepsKeyOrder,
    ...(parts.system === undefined ? {} : { system: parts.system }),
    async publish(messages, signal, progress) {
      if (messages.length === 0) return [];
      if (closing !== undefined) throw new UnavailableError("This publisher is closed", { fix: "Create another one" });
      if (!mayBegin(signal, progress)) return messages.map(() => NOT_TRIED);
      const sending = send(messages, signal, progress);
      underWay.add(sending);
      try {
        return await sending;
      } finally {
        underWay.delete(sending);
      }
    },
    ...(parts.prepare === undefined ? {} : { prepare: (messages) => parts.prepare?.(messages) }),
    close: () => (closing ??= Promise.resolve().then(close)),
  };
}
