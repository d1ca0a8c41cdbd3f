import type { AttemptError } from "./contracts.ts";
import { describeError } from "./errors.ts";

/** Why a message became a dead letter, as headers that travel with it. */
export interface DeadHeaders extends Record<string, string> {
  "dead-error": string;
  "dead-attempts": string;
  /** The relay or consumer that gave it up. */
  "dead-by": string;
  "dead-at": string;
}

/** `errors` are those of earlier attempts, as JSON in the header `dead-errors`. */
export function deadHeaders(
  by: string,
  error: unknown,
  attempts: number,
  errors: readonly AttemptError[] = [],
): DeadHeaders {
  return {
    "dead-error": typeof error === "string" ? error : describeError(error),
    "dead-attempts": String(attempts),
    "dead-by": by,
    "dead-at": new Date().toISOString(),
    ...(errors.length === 0 ? undefined : { "dead-errors": JSON.stringify(errors) }),
  };
}
