import { valueKind } from "./value-kind.ts";

/** Every code a TxboxError can carry. Recognise errors by code, never by `instanceof`. */
export type ErrorCode =
  | "invalid_option"
  | "invalid_message"
  | "invalid_payload"
  | "payload_too_large"
  | "no_transaction"
  | "schema_missing"
  | "schema_outdated"
  | "schema_too_new"
  | "standby"
  | "restored_copy"
  | "row_security"
  | "unsafe_search_path"
  | "lease_lost"
  | "relay_dropped"
  | "not_found"
  | "conflict"
  | "unavailable"
  | "permanent"
  | "handler_timeout"
  | "receipt_expired"
  | "invalid_archive";

/** Where a payload does not fit its schema, and why. */
export interface PayloadIssue {
  /** From the payload to the part: names of properties, and places in arrays. */
  readonly path: readonly (string | number)[];
  readonly message: string;
}

export interface ErrorDetails {
  /** The option or message field at fault. */
  field?: string;
  /** What to do about it, as an instruction. */
  fix?: string;
  /** Whether the same call may succeed later with nothing changed. */
  retryable?: boolean;
  /** Why a payload does not fit its contract. */
  issues?: readonly PayloadIssue[];
  cause?: unknown;
}

/** The one error class: a stable `code`, the `field` at fault and the `fix`. */
export class TxboxError extends Error {
  override readonly name: string = "TxboxError";
  readonly code: ErrorCode;
  readonly field: string | undefined;
  readonly fix: string | undefined;
  readonly retryable: boolean;
  /** Where a payload does not fit its contract; otherwise absent. */
  declare readonly issues?: readonly PayloadIssue[];

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    // What a server said may end with a full stop of its own.
    const text = details.fix === undefined ? message : `${message.replace(/\.$/, "")}. ${details.fix}`;
    super(text, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.field = details.field;
    this.fix = details.fix;
    this.retryable = details.retryable ?? false;
    if (details.issues !== undefined) this.issues = details.issues;
  }
}

/** Thrown by a handler or publisher: this message can never work, make it a dead letter at once. */
export class PermanentError extends TxboxError {
  override readonly name: string = "PermanentError";

  constructor(message: string, details: ErrorDetails = {}) {
    super("permanent", message, details);
  }
}

export interface UnavailableDetails extends ErrorDetails {
  /** Only this part of the target is out, such as one receiver or queue: messages for others go on. */
  route?: string;
  /** The target asks to be left alone for so long. */
  retryAfterMs?: number;
}

/** Thrown by a handler or publisher: the target is out, the message is not at fault and no attempt is counted. */
export class UnavailableError extends TxboxError {
  override readonly name: string = "UnavailableError";
  readonly route: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(message: string, { route, retryAfterMs, ...details }: UnavailableDetails = {}) {
    super("unavailable", message, { retryable: true, ...details });
    this.route = route;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Never throws, whatever was thrown: what a handler throws may be anything. */
export function errorCode(error: unknown): string | undefined {
  try {
    if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
    return typeof error.code === "string" ? error.code : undefined;
  } catch {
    return undefined;
  }
}

/** Name and message of anything thrown, cut to a length that fits a row. Never throws. */
export function describeError(error: unknown, maxLength = 1000): string {
  const clean = textOf(error).replaceAll("\u0000", "\uFFFD").toWellFormed();
  return clean.length > maxLength ? `${clean.slice(0, maxLength - 1).toWellFormed()}…` : clean;
}

function textOf(error: unknown): string {
  try {
    if (!(error instanceof Error)) return String(error);
    return `${error.name}: ${failedQuery(error) ?? `${error.message}${why(error)}`}`;
  } catch {
    return `What was thrown, ${valueKind(error)}, cannot be made into text`;
  }
}

/** Errors of `fetch` and others tell only in their cause what has happened. */
function why({ message, cause }: Error): string {
  const reason = reasonOf(cause);
  return reason === undefined || message.includes(reason) ? "" : ` (${reason})`;
}

/**
 * Drizzle's error begins with the query and its values, and has the reason only in its cause. The reason comes first here, so
 * that it is not cut off. The values are left out: they differ with each message, and may be secret.
 */
function failedQuery(error: Error): string | undefined {
  const reason = reasonOf(error.cause);
  if (reason === undefined || !("query" in error) || !("params" in error)) return undefined;
  const said = `Failed query: ${String(error.query)}`;
  return error.message.startsWith(said) ? `${reason} (${said})` : undefined;
}

function reasonOf(cause: unknown): string | undefined {
  if (!(cause instanceof Error)) return undefined;
  return cause.message === "" ? errorCode(cause) : cause.message;
}
