import type { Clock } from "../core/contracts.ts";

/**
 * Calls an action now and then every so many milliseconds; resolves when the signal has aborted and the last call has
 * ended. Errors of the action are ignored, since it is called again: report them in the action.
 */
export async function repeat(
  everyMs: number,
  action: () => Promise<void> | void,
  signal: AbortSignal,
  clock: Clock,
): Promise<void> {
  while (!signal.aborted) {
    try {
      await action();
    } catch {
      // The next call may work.
    }
    await clock.sleep(everyMs, signal);
  }
}
