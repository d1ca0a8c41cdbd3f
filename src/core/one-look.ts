import { systemClock } from "./clock.ts";
import type { Clock } from "./contracts.ts";

/** After this time an answer is no longer expected: its connection broke unnoticed. */
const GIVEN_UP_MS = 60_000;

/**
 * Asks only when the answer before has come; questions in between wait for that answer. So a slow database is not given
 * more work with every question.
 */
export function oneLook<T>(ask: () => Promise<T>, clock: Clock = systemClock): () => Promise<T> {
  let open: { readonly answer: Promise<T>; readonly since: number } | undefined;
  return () => {
    const now = clock.monotonic();
    if (open !== undefined && now - open.since < GIVEN_UP_MS) return open.answer;
    const mine = { answer: ask(), since: now };
    const end = (): void => {
      if (open === mine) open = undefined;
    };
    open = mine;
    mine.answer.then(end, end);
    return mine.answer;
  };
}
