import { describeError } from "../../core/errors.ts";

/** Why a message became a dead letter, as headers that travel with it. */
export interface DeadHeaders extends Record<string, string> {
  "dead-error": string;
  "dead-attempts": string;
  /** The relay or consumer that gave it up. */
  "dead-by": string;
  "dead-at": string;
}

export function deadHeaders(by: string, error: unknown, attempts: number): DeadHeaders {
  return {
    "dead-error": describeError(error),
    "dead-attempts": String(attempts),
    "dead-by": by,
    "dead-at": new Date().toISOString(),
  };
}
