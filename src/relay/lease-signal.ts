import type { Claim, Clock, QueueSession } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";

/** What a publisher is told about the lease of its batch. */
export interface LeaseSignal {
  /** Aborts when the lease is over or a stop has reached its deadline; its reason says which. */
  readonly signal: AbortSignal;
  /** Answered by the clock: after a pause of the whole process, the timer of the signal comes too late. */
  readonly mayBegin: () => boolean;
  dispose(): void;
}

type Lease = Pick<QueueSession, "validUntil" | "isCurrent">;

/** The lease is over by the clock, or the claim is void. */
export function isLeaseLost(session: Lease, claim: Claim, clock: Clock): boolean {
  return clock.monotonic() >= session.validUntil || !session.isCurrent(claim);
}

export function leaseSignal(session: Lease, claim: Claim, clock: Clock, stop: AbortSignal): LeaseSignal {
  const controller = new AbortController();
  const { signal } = controller;
  // Released at the end: the garbage collector frees signals late, and each would keep its messages in memory.
  let held: Claim | undefined = claim;
  const atDeadline = (): void => controller.abort(new Error("the stop has reached its deadline"));
  let timer: NodeJS.Timeout | undefined;
  const watch = (): void => {
    const left = session.validUntil - clock.monotonic();
    if (left <= 0) controller.abort(leaseOver());
    else timer = setTimeout(watch, left);
  };
  watch();
  if (stop.aborted) atDeadline();
  stop.addEventListener("abort", atDeadline, { once: true });
  return {
    signal,
    mayBegin: () => held !== undefined && !signal.aborted && !isLeaseLost(session, held, clock),
    dispose() {
      held = undefined;
      clearTimeout(timer);
      stop.removeEventListener("abort", atDeadline);
    },
  };
}

function leaseOver(): TxboxError {
  return new TxboxError("lease_lost", "the lease is over", { retryable: true });
}
