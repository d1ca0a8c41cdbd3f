import { errorCode, TxboxError } from "../core/errors.ts";
import { formatMs } from "./format-values.ts";
import { UsageError } from "./usage-error.ts";
import { LATE, within } from "./within.ts";

/** A function of the configuration failed; its error is the cause. */
export class ConfigCallError extends Error {
  override readonly name: string = "ConfigCallError";
  readonly code: string | undefined;

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = errorCode(cause);
  }
}

/** Calls a function of the configuration. One that throws, or never settles, ends with an error that names it. */
export async function configCall<T>(what: string, deadlineMs: number, call: () => T | Promise<T>): Promise<T> {
  try {
    const value = await within(deadlineMs, (async () => call())());
    if (value !== LATE) return value;
  } catch (error) {
    if (error instanceof TxboxError || error instanceof UsageError) throw error;
    throw new ConfigCallError(`${what} failed: ${messageOf(error)}`, error);
  }
  throw new ConfigCallError(`${what} took longer than ${formatMs(deadlineMs)}`);
}

/** A failed connection to a host with several addresses is an AggregateError without a message. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === "") return error.errors.map(messageOf).join("; ");
  return error instanceof Error ? error.message || error.name : String(error);
}
