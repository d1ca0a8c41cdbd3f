import { ServerUnavailableError } from "./server-unavailable-error.ts";

export interface ServerSlot<T> {
  /** For `describe.skipIf(slot.skipped)`. Always false in CI, where a missing server is a failure. */
  readonly skipped: boolean;
  readonly reason: string | undefined;
  /** The running server; throws when skipped. */
  readonly server: T;
  stop(): Promise<void>;
}

/** Starts a server; when this machine lacks it, skips with a loud reason on a laptop and fails when CI is set. */
export async function serverOrSkip<T extends { stop(): Promise<void> }>(
  name: string,
  start: () => Promise<T>,
): Promise<ServerSlot<T>> {
  try {
    const server = await start();
    return { skipped: false, reason: undefined, server, stop: () => server.stop() };
  } catch (error) {
    if (!(error instanceof ServerUnavailableError) || inCi()) throw error;
    const { reason } = error;
    process.stderr.write(`\n*** SKIPPED: no ${name}. ${reason}\n\n`);
    return {
      skipped: true,
      reason,
      get server(): T {
        throw error;
      },
      stop: () => Promise.resolve(),
    };
  }
}

export function inCi(): boolean {
  const { CI } = process.env;
  return CI !== undefined && CI !== "" && CI !== "0" && CI !== "false";
}
