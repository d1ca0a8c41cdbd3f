import type { Clock } from "../core/contracts.ts";

export interface LeaseSignal {
  readonly signal: AbortSignal;
  readonly lost: boolean;
  dispose(): void;
}

/**
 * Aborts when the lease has run out. `aborted` asks the clock itself: after a pause of the whole process a timer would
 * come too late to keep the next message in.
 */
export function leaseSignal(lease: { readonly validUntil: number }, clock: Clock, stop: AbortSignal): LeaseSignal {
  const controller = new AbortController();
  const over = () => clock.monotonic() >= lease.validUntil;
  const abort = () => controller.abort();
  let timer: NodeJS.Timeout | undefined;
  const watch = () => {
    const left = lease.validUntil - clock.monotonic();
    if (left <= 0) abort();
    else timer = setTimeout(watch, left);
  };
  watch();
  stop.addEventListener("abort", abort, { once: true });
  const { signal } = controller;
  Object.defineProperty(signal, "aborted", {
    get: () => Reflect.get(AbortSignal.prototype, "aborted", signal) || over(),
  });
  return {
    signal,
    get lost() {
      return over();
    },
    dispose() {
      clearTimeout(timer);
      stop.removeEventListener("abort", abort);
    },
  };
}
