import { describe, expect, it } from "vitest";
import { isLeaseLost, leaseSignal } from "../../../src/relay/lease-signal.ts";
import { fakeClock } from "../../../src/testing/fake-clock.ts";
import { claimOf, message } from "./sample-claim.ts";

const claim = claimOf([message(1)]);

function bench() {
  const clock = fakeClock();
  const session = { validUntil: 60_000, current: true, isCurrent: () => session.current };
  const stop = new AbortController();
  const lease = leaseSignal(session, claim, clock, stop.signal);
  const isLost = (): boolean => isLeaseLost(session, claim, clock);
  return { clock, session, stop, lease, isLost };
}

describe("the lease of a batch", () => {
  it("is over at once after a pause, though no timer has run", async () => {
    const { clock, lease, isLost } = bench();
    expect(lease.mayBegin()).toBe(true);
    await clock.advance(60_000);
    expect(lease.signal.aborted).toBe(false);
    expect([lease.mayBegin(), isLost()]).toEqual([false, true]);
    lease.dispose();
  });

  it("goes on while it is renewed", async () => {
    const { clock, session, lease } = bench();
    session.validUntil = 120_000;
    await clock.advance(60_000);
    expect(lease.mayBegin()).toBe(true);
    lease.dispose();
  });

  it("is over when the claim is void, whatever the clock says", () => {
    const { session, lease, isLost } = bench();
    session.current = false;
    expect([lease.mayBegin(), isLost()]).toEqual([false, true]);
    lease.dispose();
  });

  it("is not lost when a stop reaches its deadline, and the signal says so", () => {
    const { stop, lease, isLost } = bench();
    stop.abort();
    expect([lease.mayBegin(), isLost()]).toEqual([false, false]);
    expect(lease.signal.reason).toMatchObject({ message: "the stop has reached its deadline" });
    lease.dispose();
  });

  it("lets nothing begin after its end", () => {
    const { lease, isLost } = bench();
    lease.dispose();
    expect([lease.mayBegin(), isLost()]).toEqual([false, false]);
  });

  it("aborts its signal by a timer", () => {
    const clock = fakeClock(1000);
    const { signal } = leaseSignal(
      { validUntil: 1000, isCurrent: () => true },
      claim,
      clock,
      new AbortController().signal,
    );
    expect(signal.reason).toMatchObject({ code: "lease_lost" });
  });
});
