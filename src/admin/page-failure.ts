import { describeError, errorCode, TxboxError } from "../core/errors.ts";
import { errorText } from "./shown-text.ts";
import type { Failure } from "./page-api.ts";

/** A request that is answered with a status of its own. */
export class PageFailure extends Error {
  override readonly name = "PageFailure";
  readonly status: number;
  readonly fix: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(status: number, message: string, details: { fix?: string; retryAfterMs?: number } = {}) {
    super(message);
    this.status = status;
    this.fix = details.fix;
    this.retryAfterMs = details.retryAfterMs;
  }
}

export interface FailureAnswer extends Failure {
  status: number;
  retryAfterMs: number | undefined;
}

/** What the page is told of an error: what was wrong with the request, or that the store cannot be used now. */
export function failureAnswer(error: unknown): FailureAnswer {
  if (error instanceof PageFailure) {
    return { status: error.status, error: error.message, fix: error.fix ?? null, retryAfterMs: error.retryAfterMs };
  }
  const code = errorCode(error);
  const text = errorText(error instanceof TxboxError ? error.message : describeError(error));
  if (
    code === "invalid_option" ||
    code === "invalid_message" ||
    code === "invalid_payload" ||
    code === "payload_too_large"
  )
    return { status: 400, error: text, fix: null, retryAfterMs: undefined };
  if (code === "conflict") return { status: 409, error: text, fix: null, retryAfterMs: undefined };
  if (code === "not_found") return { status: 404, error: text, fix: null, retryAfterMs: undefined };
  return { status: 503, error: `The store gave no answer: ${text}`, fix: "Look at Doctor", retryAfterMs: undefined };
}
