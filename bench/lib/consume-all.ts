import { setTimeout as sleep } from "node:timers/promises";
import type { Broker } from "../brokers/broker.ts";
import type { Message } from "../../src/index.ts";
import type { ConsumeResult } from "./contestant.ts";
import { createMessages } from "./messages.ts";
import { stopwatch } from "./stopwatch.ts";

/** Starting a consumer takes some messages; they are not counted. */
const SETTLING = 200;
const FEED = 1000;
const DEADLINE_MS = 60_000;

/**
 * Puts messages into the broker, then starts a consumer and lets it handle all of them. The time runs without the
 * first few, so that joining a group or opening a channel is not part of it.
 */
export async function consumeAll(
  broker: Broker,
  messages: number,
  publish: (messages: readonly Message[]) => Promise<unknown>,
  start: (done: () => void) => Promise<() => Promise<void>>,
): Promise<ConsumeResult> {
  await broker.reset();
  const total = messages + SETTLING;
  const all = createMessages(total);
  for (let from = 0; from < total; from += FEED) await publish(all.slice(from, from + FEED));

  const finished = Promise.withResolvers<void>();
  let handled = 0;
  let watch = stopwatch();
  const stop = await start(() => {
    handled += 1;
    if (handled === SETTLING) watch = stopwatch();
    if (handled === total) finished.resolve();
  });
  const timer = setTimeout(() => {
    finished.reject(new Error(`${handled} of ${total} messages were handled within ${DEADLINE_MS / 1000} s`));
  }, DEADLINE_MS);
  await finished.promise.finally(() => clearTimeout(timer));
  const time = watch();
  await stop();
  return { handled, unread: await lastWord(broker), ...time };
}

/** Acknowledgements may still be on their way. */
async function lastWord(broker: Broker): Promise<number> {
  let unread = await broker.unread();
  for (let tries = 0; tries < 50 && unread > 0; tries += 1) {
    await sleep(20);
    unread = await broker.unread();
  }
  return unread;
}
