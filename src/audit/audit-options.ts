import { isDate } from "node:util/types";
import type { Publisher, Store } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import {
  rejectUnknownOptions,
  requireFunction,
  requireInteger,
  requireName,
  requireSignal,
  requireText,
  requireTexts,
} from "../core/options.ts";
import { valueKind } from "../core/value-kind.ts";
import type { AuditFinding, AuditProgress } from "./audit-report.ts";

export interface AuditOptions {
  /** The store whose relay published the messages. */
  from: Pick<Store, "admin">;
  /** The store with the receipts; it may be the same one, or of another kind. */
  to: Pick<Store, "admin">;
  /** Whose receipts. */
  consumer: string;
  /** The relay that feeds the consumer. Default: the only one that delivers these streams. */
  relay?: string;
  /** Only these streams. Default: all of the relay. */
  streams?: readonly string[];
  /** The types that the consumer has handlers for. Default: all. A type that it skips leaves no receipt. */
  types?: readonly string[];
  /** What was enqueued from here on. */
  since: Date;
  /** And before this. Default: now. */
  until?: Date;
  /** A message that was published less long ago may be on its way. Default: five minutes. */
  graceMs?: number;
  /** Report what was handled later than this after it was enqueued. Default: nothing is late. */
  lateMs?: number;
  /** Sends what is missing again: the publisher of the relay. */
  requeue?: Publisher;
  /** So many of them a second. Default 100. */
  rate?: number;
  /** How many findings the report lists; all are counted. Default 1000. */
  limit?: number;
  /** Told every finding, also beyond `limit`. */
  onFinding?: (finding: AuditFinding) => void;
  /** Told after each page. */
  onProgress?: (progress: AuditProgress) => void;
  /** Ends the audit, which then rejects with the reason. */
  signal?: AbortSignal;
}

export const DEFAULT_RATE = 100;
export const DEFAULT_GRACE_MS: number = 5 * 60_000;

const KNOWN: readonly (keyof AuditOptions)[] = [
  "from",
  "to",
  "consumer",
  "relay",
  "streams",
  "types",
  "since",
  "until",
  "graceMs",
  "lateMs",
  "requeue",
  "rate",
  "limit",
  "onFinding",
  "onProgress",
  "signal",
];

export function checkAuditOptions(options: AuditOptions): void {
  const of = "audit";
  rejectUnknownOptions(of, options, KNOWN);
  for (const field of ["from", "to"] as const) {
    if (typeof options[field]?.admin?.sent === "function") continue;
    throw invalid(field, `must be a store, got ${valueKind(options[field])}`, `Pass { ${field}: store }`);
  }
  requireName(of, "consumer", options.consumer);
  for (const field of ["streams", "types"] as const)
    if (options[field] !== undefined) requireTexts(of, field, options[field]);
  if (options.relay !== undefined) requireText(of, "relay", options.relay);
  if (options.signal !== undefined) requireSignal(of, "signal", options.signal);
  const { since, until = new Date(), graceMs = 0, lateMs = 0, limit = 0, rate = 1, requeue } = options;
  for (const [field, value] of Object.entries({ since, until })) {
    if (!isDate(value) || Number.isNaN(value.getTime()))
      throw invalid(field, `must be a Date, got ${valueKind(value)}`, `Pass { ${field}: new Date(…) }`);
  }
  if (since >= until) throw invalid("until", "is not after since", "Give a later time, or leave it out");
  requireInteger(of, "graceMs", graceMs, 0);
  requireInteger(of, "lateMs", lateMs, 0);
  requireInteger(of, "limit", limit, 0);
  requireInteger(of, "rate", rate, 1, 1_000_000);
  for (const field of ["onFinding", "onProgress"] as const)
    if (options[field] !== undefined) requireFunction(of, field, options[field], "Pass a function, or leave it out");
  if (requeue !== undefined && typeof requeue?.publish !== "function")
    throw invalid("requeue", `must be a publisher, got ${valueKind(requeue)}`, "Pass the publisher of the relay");
}

function invalid(field: string, what: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `audit: ${field} ${what}`, { field, fix });
}
