import { expect, it } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import type { Claim, JoinOptions, QueueSession, Store } from "../../../src/core/contracts.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createMemoryPublisher } from "../../../src/testing/memory-publisher.ts";
import { withCrashPoints } from "../../../src/testing/index.ts";
import { until } from "../../harness/deadline.ts";
import { claimOf, message } from "./sample-claim.ts";

/** A queue that tells of what comes, and is looked at for that reason alone. */
function tellingQueue() {
  let waiting: Claim | undefined;
  let tell: JoinOptions["onNews"];
  let looks = 0;
  const session: QueueSession = {
    validUntil: systemClock.monotonic() + 60_000,
    isTold: true,
    isCurrent: () => true,
    async claim(kind) {
      if (kind === "retry") return undefined;
      looks++;
      const claim = waiting;
      waiting = undefined;
      return claim;
    },
    admit: () => "all",
    settle: async () => undefined,
    pauseAttempt: async () => undefined,
    resumeAttempt: async () => undefined,
    abandon: () => undefined,
    tend: async () => ({ lanes: 64, paused: false, parked: 0, blockedKeys: 0, full: false }),
    nextRetryAt: () => undefined,
    nextScheduledAt: () => undefined,
    detach: (claim) => claim,
    leave: async () => undefined,
  };
  const join = async (options: JoinOptions): Promise<QueueSession> => {
    tell = options.onNews;
    return session;
  };
  const store = { queue: { join }, migrator: { check: async () => undefined } };
  return {
    store: store as unknown as Store,
    looks: () => looks,
    bring(claim: Claim): void {
      waiting = claim;
      tell?.();
    },
  };
}

it("a relay that waits is woken by its own queue, also when the store is wrapped", async () => {
  const queue = tellingQueue();
  const publisher = createMemoryPublisher();
  const wrapped = withCrashPoints({ store: queue.store, publisher }, () => undefined);
  const relay = createRelay({ ...wrapped, name: "orders", maintenance: false, maxPollMs: 60_000 });
  await relay.start();
  await until(() => queue.looks() > 0, { what: "the first look" });
  // By now it looks ever less often: next about a second from here.
  await new Promise((resolve) => setTimeout(resolve, 1200));
  queue.bring(claimOf([message(1, "a")]));
  await until(() => publisher.published.length === 1, { what: "the message", timeoutMs: 500 });
  expect(publisher.published.map(({ id }) => id)).toEqual(["m-1"]);
  await relay.stop();
});
