import type { Clock } from "../core/contracts.ts";
import { UnavailableError } from "../core/errors.ts";
import { givenUp } from "../core/may-begin.ts";
import { ABORTED, LATE, settledWithin } from "../core/settled-within.ts";

/** What a promise comes to; an UnavailableError when that takes too long, with this text, or when the signal aborts. */
export async function answerWithin<T>(
  promise: Promise<T>,
  ms: number,
  late: string,
  signal?: AbortSignal,
  clock?: Clock,
): Promise<T> {
  const answer = await settledWithin(promise, ms, signal, clock);
  if (answer === LATE) throw new UnavailableError(late);
  if (answer === ABORTED) throw givenUp(signal!);
  return answer;
}
