import { publishByKey } from "./by-key.ts";
import type { Publisher, PublishResult } from "./contracts.ts";
import { errorCode } from "./errors.ts";
import type { Message } from "./message.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "./options.ts";

export interface PublishEachOptions {
  /** Messages of different keys in hand at once. Default 10. */
  concurrency?: number;
}

/**
 * A publisher from a function per message: done when it resolves, tried again when it throws, dead at once for a
 * PermanentError; after an UnavailableError the relay waits and no attempt is counted.
 */
export function publishEach(
  publish: (message: Message, signal: AbortSignal) => Promise<unknown>,
  options: PublishEachOptions = {},
): Publisher {
  requireFunction("publishEach", "publish", publish, "Pass async (message, signal) => { … }");
  rejectUnknownOptions("publishEach", options, ["concurrency"]);
  const { concurrency = 10 } = options;
  requireInteger("publishEach", "concurrency", concurrency, 1, 10_000);
  return {
    keepsKeyOrder: true,
    publish: (messages, signal) =>
      publishByKey(
        messages,
        async (message) => {
          try {
            await publish(message, signal);
            return { status: "published" };
          } catch (error) {
            return failureOf(error);
          }
        },
        { concurrency, signal },
      ),
  };
}

/** What an error that was thrown for one message says about it. */
export function failureOf(error: unknown): Exclude<PublishResult, { status: "published" }> {
  switch (errorCode(error)) {
    case "permanent":
    case "payload_too_large":
      return { status: "rejected", error };
    case "unavailable":
      return { status: "unavailable", error };
    default:
      return { status: "failed", error };
  }
}
