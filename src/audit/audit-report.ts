import type { SentMessage } from "../core/contracts.ts";

/**
 * What is wrong with a message: `missing` was published and has no receipt; `failed` has the receipt of a failed attempt;
 * `unhandled` was stored by the consumer, which has not handled it; `late` was handled later than allowed; `dead` is a
 * dead letter of the relay.
 */
export type AuditOutcome = "missing" | "failed" | "unhandled" | "late" | "dead";

export interface AuditFinding extends SentMessage {
  outcome: AuditOutcome;
  publishedAt: Date | null;
  /** How long it took from when it was enqueued, or due, until its handler had ended. Only with `late`. */
  tookMs: number | null;
  attempts: number;
  lastError: string | null;
  /** Whether it was sent again; undefined unless that was asked for. */
  requeued?: boolean;
}

export interface AuditReport extends Record<AuditOutcome, number> {
  /**
   * Every message could be judged and has arrived in time, or may be on its way: nothing was found, nothing waits at the
   * sender for longer than `graceMs`.
   */
  clean: boolean;
  relay: string;
  consumer: string;
  since: Date;
  until: Date;
  /** Messages that were looked at. */
  checked: number;
  /** Handled, in time. */
  arrived: number;
  /** Too young to be missed. */
  underway: number;
  /** Not published yet: they are in the backlog of the relay, which the figures below are of. */
  unsent: number;
  /** The relay was told to leave them out: a new start, a rewind to now, a rebase. */
  skipped: number;
  /** Without a receipt, and too old for one to be kept: it is unknown whether it was received. */
  unjudged: number;
  /** Set when `since` is earlier: messages from before this time may be gone from the log. */
  keptSince: Date | null;
  backlog: { pending: number; oldestAgeMs: number | null };
  /** The first ones, up to `limit`. */
  findings: AuditFinding[];
  requeued: RequeueReport | null;
}

export interface RequeueReport {
  sent: number;
  /** Not sent: the target refused them, or an earlier one of their key. */
  failed: number;
  /** Why the rest was left alone, or the last refusal. */
  error: string | null;
}

/** What an audit tells while it runs. */
export interface AuditProgress extends Record<AuditOutcome, number> {
  checked: number;
  /** When the last message that was looked at was enqueued. */
  at: Date | null;
}

export function isClean(report: AuditReport, graceMs: number): boolean {
  const { missing, failed, unhandled, late, dead, unjudged, keptSince, backlog } = report;
  const found = missing + failed + unhandled + late + dead + unjudged;
  return found === 0 && keptSince === null && (backlog.oldestAgeMs ?? 0) <= graceMs;
}
