import { backoffMs } from "../../core/backoff.ts";
import type { Clock } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import type { WakeUpEvent } from "../../core/events.ts";
import { eventEmitter } from "../../core/channels.ts";
import type { Table } from "./table.ts";

export interface WakeUpOptions {
  onEvent?: (event: WakeUpEvent) => void;
}

/**
 * Wakes the relays of this process when another process has enqueued something. It makes them look sooner: they find
 * all messages by polling too.
 */
export interface WakeUp extends AsyncDisposable {
  close(): Promise<void>;
}

const BACKOFF = { baseMs: 1000, maxMs: 30_000 };
/** Change streams are for replica sets. */
const NOT_SUPPORTED = 40_573;

/** Follows inserts by a change stream. What it misses while it is gone costs time, not messages, so it resumes nothing. */
export function startWakeUp(outbox: Table, clock: Clock, wake: () => void, options: WakeUpOptions): WakeUp {
  const onEvent = eventEmitter<WakeUpEvent>("store", options.onEvent);
  const closing = new AbortController();

  /** Gives the reason when the stream has ended, and none when it was asked to. */
  async function follow(): Promise<unknown> {
    const inserts = [{ $match: { operationType: "insert" } }, { $project: { _id: 1 } }];
    const stream = outbox.raw.watch(inserts, { maxAwaitTimeMS: 1000, readConcern: { level: "majority" } });
    const close = () => void stream.close().catch(() => undefined);
    closing.signal.addEventListener("abort", close, { once: true });
    try {
      if ((await stream.tryNext()) !== null) wake();
      onEvent({ type: "wake_up_started" });
      for await (const _ of stream) wake();
      return closing.signal.aborted ? undefined : new Error("The change stream ended");
    } catch (error) {
      return closing.signal.aborted ? undefined : (error ?? new Error("The change stream failed"));
    } finally {
      closing.signal.removeEventListener("abort", close);
      close();
    }
  }

  async function run(): Promise<void> {
    for (let failures = 1; !closing.signal.aborted; failures++) {
      const openedAt = clock.monotonic();
      const error = await follow();
      if (error === undefined) return;
      const again = (error as { code?: unknown }).code !== NOT_SUPPORTED;
      onEvent({ type: "wake_up_lost", error: describeError(error), again });
      if (!again) return;
      // Relays look at once: no signal came for what was enqueued meanwhile.
      wake();
      if (clock.monotonic() - openedAt > BACKOFF.maxMs) failures = 1;
      await clock.sleep(Math.max(50, backoffMs(failures, BACKOFF)), closing.signal);
    }
  }

  const running = run();
  const close = async (): Promise<void> => {
    closing.abort();
    await running;
  };
  return { close, [Symbol.asyncDispose]: close };
}
