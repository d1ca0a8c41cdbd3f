import { publishByKey } from "./by-key.ts";
import type { Publisher, PublishResult } from "./contracts.ts";
import { errorCode, TxboxError } from "./errors.ts";
import type { Message } from "./message.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "./options.ts";
import { PublishSlots } from "./publish-slots.ts";
import { LATE, settledWithin } from "./settled-within.ts";

export interface PublishEachOptions {
  /** Messages of different keys in hand at once, those not counted that take long or are tried again. Default 10. */
  concurrency?: number;
  /** A message without an answer after this time has failed, and its signal aborts. Default 30 s. */
  timeoutMs?: number;
}

/** Messages that take long, or are tried again, for each of those that `concurrency` allows. */
const LONG_SHARE = 10;

/**
 * A publisher from a function per message: done when it resolves, tried again when it throws, dead at once for a
 * PermanentError. After an UnavailableError no attempt is counted: the relay waits, or only messages of its `route` do.
 */
export function publishEach(
  publish: (message: Message, signal: AbortSignal) => Promise<unknown>,
  options: PublishEachOptions = {},
): Publisher {
  requireFunction("publishEach", "publish", publish, "Pass async (message, signal) => { … }");
  rejectUnknownOptions("publishEach", options, ["concurrency", "timeoutMs"]);
  const { concurrency = 10, timeoutMs = 30_000 } = options;
  requireInteger("publishEach", "concurrency", concurrency, 1, 10_000);
  requireInteger("publishEach", "timeoutMs", timeoutMs, 1, 2 ** 31 - 1);
  const slots = new PublishSlots(concurrency, concurrency * LONG_SHARE);
  return {
    keepsKeyOrder: true,
    publish: (messages, signal, progress) =>
      publishByKey(messages, (message) => publishOne(publish, message, signal, timeoutMs), {
        concurrency,
        signal,
        progress,
        slots,
      }),
  };
}

async function publishOne(
  publish: (message: Message, signal: AbortSignal) => Promise<unknown>,
  message: Message,
  outer: AbortSignal,
  timeoutMs: number,
): Promise<PublishResult> {
  const own = new AbortController();
  const abort = () => own.abort(outer.reason);
  outer.addEventListener("abort", abort);
  try {
    if ((await settledWithin(Promise.resolve(publish(message, own.signal)), timeoutMs)) !== LATE)
      return { status: "published" };
    const error = noAnswer(timeoutMs);
    own.abort(error);
    return failureOf(error);
  } catch (error) {
    return failureOf(error);
  } finally {
    outer.removeEventListener("abort", abort);
  }
}

function noAnswer(timeoutMs: number): TxboxError {
  return new TxboxError("handler_timeout", `There was no answer within ${timeoutMs} ms`, { retryable: true });
}

/** What an error that was thrown for one message says about it. */
export function failureOf(error: unknown): Exclude<PublishResult, { status: "published" | "held" }> {
  switch (errorCode(error)) {
    case "permanent":
    case "payload_too_large":
      return { status: "rejected", error };
    case "unavailable":
      return outageOf(error);
    default:
      return { status: "failed", error };
  }
}

/** What an UnavailableError says is out. By its fields rather than its class: packages get duplicated. */
export function outageOf(error: unknown): {
  readonly status: "unavailable";
  readonly error: unknown;
  readonly route: string | undefined;
  readonly retryAfterMs: number | undefined;
} {
  const { route, retryAfterMs } = error as { route?: unknown; retryAfterMs?: unknown };
  return {
    status: "unavailable",
    error,
    route: typeof route === "string" ? route : undefined,
    retryAfterMs: typeof retryAfterMs === "number" && retryAfterMs >= 0 ? retryAfterMs : undefined,
  };
}
