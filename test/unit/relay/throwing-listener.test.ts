import { afterEach, expect, it, vi } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import type { Claim, Outcome, QueueSession, Store } from "../../../src/core/contracts.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createMemoryPublisher } from "../../../src/testing/memory-publisher.ts";
import { claimOf, message } from "./sample-claim.ts";

afterEach(() => void vi.restoreAllMocks());

/** A queue with one claim in it, handed out again whenever it is abandoned. */
function queueOf(claim: Claim) {
  const settled: Outcome[] = [];
  let held = false;
  const session: QueueSession = {
    validUntil: systemClock.monotonic() + 60_000,
    isTold: false,
    isCurrent: () => true,
    async claim(kind) {
      if (held || kind === "retry") return undefined;
      held = true;
      return claim;
    },
    admit: () => "all",
    settle: async (_, outcomes) => void settled.push(...outcomes),
    pauseAttempt: async () => undefined,
    resumeAttempt: async () => undefined,
    abandon: () => void (held = settled.length > 0),
    tend: async () => ({ lanes: 64, paused: false, parked: 0, blockedKeys: 0, full: false }),
    nextRetryAt: () => undefined,
    nextScheduledAt: () => undefined,
    detach: (claim) => claim,
    leave: async () => undefined,
  };
  const store = { queue: { join: async () => session }, migrator: { check: async () => undefined } };
  return { store: store as unknown as Store, settled };
}

it("a listener that throws costs nothing but a warning", async () => {
  const warned = vi.spyOn(process, "emitWarning").mockReturnValue();
  const messages = [message(1, "a"), message(2, "b"), message(3, "c")];
  const { store, settled } = queueOf(claimOf(messages));
  const publisher = createMemoryPublisher();
  publisher.fail(({ key }) => key === "b");
  const heard = new Set<string>();
  const relay = createRelay({
    store,
    name: "orders",
    publisher,
    maintenance: false,
    onEvent: ({ type }) => {
      heard.add(type);
      throw new Error("the listener is broken");
    },
  });
  const drained = await relay.drainOnce({ deadlineMs: 2000 });
  expect(drained).toMatchObject({ published: 2, retried: 1, dead: 0 });
  expect(publisher.batches).toEqual([3]);
  expect(publisher.published.map(({ id }) => id)).toEqual(["m-1", "m-3"]);
  expect(settled.map(({ status }) => status)).toEqual(["published", "retry", "published"]);
  expect([...heard]).toEqual(expect.arrayContaining(["retry", "batch"]));
  expect(warned).toHaveBeenCalledWith(expect.stringMatching(/onEvent threw on "retry".*broken/), "TxboxWarning");
});
