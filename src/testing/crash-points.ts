import type { Publisher, QueueSession, Store } from "../core/contracts.ts";

/** Where a relay process may die: after it claimed, before and after it published, before and after it settled. */
export type CrashPoint = "claimed" | "publishing" | "published" | "settling" | "settled";

/**
 * A store and a publisher that stop at the points where a crash hurts:
 * `withCrashPoints({ store, publisher }, (point) => point === "published" && process.kill(process.pid, "SIGKILL"))`.
 */
export function withCrashPoints<Tx>(
  { store, publisher }: { store: Store<Tx>; publisher: Publisher },
  at: (point: CrashPoint) => unknown,
): { store: Store<Tx>; publisher: Publisher } {
  return {
    store: {
      ...store,
      queue: { join: async (options) => watched(await store.queue.join(options), at) },
    },
    publisher: {
      keepsKeyOrder: publisher.keepsKeyOrder,
      async publish(messages, signal, progress) {
        await at("publishing");
        const results = await publisher.publish(messages, signal, progress);
        await at("published");
        return results;
      },
      close: async () => publisher.close?.(),
    },
  };
}

function watched(session: QueueSession, at: (point: CrashPoint) => unknown): QueueSession {
  return {
    get validUntil() {
      return session.validUntil;
    },
    get isTold() {
      return session.isTold;
    },
    async claim(kind) {
      const claim = await session.claim(kind);
      if (claim !== undefined) await at("claimed");
      return claim;
    },
    isCurrent: (claim) => session.isCurrent(claim),
    admit: (claim) => session.admit(claim),
    async settle(claim, outcomes) {
      await at("settling");
      await session.settle(claim, outcomes);
      await at("settled");
    },
    pauseAttempt: (claim) => session.pauseAttempt(claim),
    resumeAttempt: (claim) => session.resumeAttempt(claim),
    detach: (claim, index) => session.detach(claim, index),
    abandon: (claim) => session.abandon(claim),
    tend: () => session.tend(),
    nextRetryAt: () => session.nextRetryAt(),
    nextScheduledAt: () => session.nextScheduledAt(),
    leave: () => session.leave(),
  };
}
