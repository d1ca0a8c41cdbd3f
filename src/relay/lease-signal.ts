import type { Claim, Clock, QueueSession } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";

/** What a publisher is told about the lease of its batch. */
export interface LeaseSignal {
  /** Aborts when the lease is over or a stop has reached its deadline; its reason says which. */
  readonly signal: AbortSignal;
  /** The lease is over by the clock, or the claim is void. */
  readonly lost: boolean;
  /** Answered by the clock: after a pause of the whole process, the timer of the signal comes too late. */
  readonly mayBegin: () => boolean;
  dispose(): void;
}

export function leaseSignal(
  session: Pick<QueueSession, "validUntil" | "isCurrent">,
  claim: Claim,
  clock: Clock,
  stop: AbortSignal,
): LeaseSignal {
  const controller = new AbortController();
  const { signal } = controller;
  const isLost = (): boolean => clock.monotonic() >= session.validUntil || !session.isCurrent(claim);
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
    get lost() {
      return isLost();
    },
    mayBegin: () => !signal.aborted && !isLost(),
    dispose() {
      clearTimeout(timer);
      stop.removeEventListener("abort", atDeadline);
    },
  };
}

function leaseOver(): TxboxError {
  return new TxboxError("lease_lost", "the lease is over", { retryable: true });
}
