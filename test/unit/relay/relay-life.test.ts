import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { Publisher, QueueSession, Store } from "../../../src/core/contracts.ts";
import { TxboxError } from "../../../src/core/errors.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";

interface Stage {
  readonly relay: Relay;
  readonly events: string[];
  /** What was asked of session and publisher. */
  readonly calls: string[];
  /** Sessions that were joined and not left. */
  readonly open: () => number;
}

interface Script {
  join?: () => Promise<unknown>;
  claim?: () => Promise<undefined>;
  tend?: () => Promise<unknown>;
  leave?: () => Promise<void>;
  close?: () => Promise<void>;
}

function stage({ join, claim, tend, leave, close }: Script = {}): Stage {
  const events: string[] = [];
  const calls: string[] = [];
  let open = 0;
  const session: Partial<QueueSession> = {
    validUntil: Number.POSITIVE_INFINITY,
    isCurrent: () => true,
    claim: async () => claim?.(),
    nextRetryAt: () => undefined,
    nextScheduledAt: () => undefined,
    async tend() {
      await tend?.();
      return { lanes: 64, paused: false, parked: 0, blockedKeys: 0, full: false };
    },
    async leave() {
      calls.push("leave");
      await leave?.();
      open--;
    },
  };
  const store = {
    queue: {
      async join() {
        await join?.();
        open++;
        return session;
      },
    },
    migrator: { check: async () => undefined },
    classify: (error: unknown) => (error instanceof Error && error.message === "away" ? "unavailable" : undefined),
  } as unknown as Store;
  const publisher: Publisher = {
    keepsKeyOrder: true,
    publish: async () => [],
    async close() {
      calls.push("close");
      await close?.();
    },
  };
  const onEvent = ({ type }: RelayEvent) => {
    if (type !== "lanes") events.push(type);
  };
  const relay = createRelay({ store, name: "r", publisher, maintenance: false, maxPollMs: 1, onEvent });
  return { relay, events, calls, open: () => open };
}

describe("the life of a relay", () => {
  it("starts and stops, again and again, once each", async () => {
    const { relay, events, calls, open } = stage();
    for (let round = 0; round < 3; round++) {
      await Promise.all([relay.start(), relay.start()]);
      expect(relay.state().running).toBe(true);
      await Promise.all([relay.stop(), relay.stop()]);
      await relay.stop();
      expect([relay.state().running, open()]).toEqual([false, 0]);
    }
    expect(events).toEqual(["started", "stopped", "started", "stopped", "started", "stopped"]);
    expect(calls).toEqual(["leave", "close", "leave", "close", "leave", "close"]);
  });

  it("tells beginning and end of each drain once, also of one that is stopped or never began", async () => {
    const { relay, events } = stage();
    await relay.drainOnce();
    await relay.drainOnce();
    expect(events).toEqual(["started", "stopped", "started", "stopped"]);
    const claimed = Promise.withResolvers<undefined>();
    const slow = stage({ claim: () => claimed.promise });
    const drain = slow.relay.drainOnce();
    await sleep(20);
    const stop = slow.relay.stop();
    claimed.resolve(undefined);
    await Promise.all([drain, stop]);
    expect(slow.events.filter((type) => type === "started" || type === "stopped")).toEqual(["started", "stopped"]);
    const away = stage({ join: () => Promise.reject(new Error("away")) });
    await expect(away.relay.drainOnce()).rejects.toThrow("away");
    expect(away.events).toEqual([]);
  });

  it("stops though the publisher cannot be closed, says so, and starts again", async () => {
    const { relay, events, open } = stage({ close: () => Promise.reject(new Error("cannot be closed")) });
    await relay.start();
    await expect(relay.stop()).rejects.toThrow("cannot be closed");
    expect([relay.state().running, open()]).toEqual([false, 0]);
    await relay.start();
    expect(relay.state().running).toBe(true);
    await relay.stop().catch(() => undefined);
    expect(events).toEqual(["started", "stopped", "started", "stopped"]);
  });

  it("gives its lanes back when it is stopped while it starts, and tells of no beginning", async () => {
    const joining = Promise.withResolvers<void>();
    const { relay, events, open } = stage({ join: () => joining.promise });
    const starting = relay.start();
    await sleep(1);
    const stopping = relay.stop();
    joining.resolve();
    await Promise.all([starting, stopping]);
    expect([relay.state().running, open(), events]).toEqual([false, 0, []]);
    await relay.start();
    expect([relay.state().running, open()]).toEqual([true, 1]);
    await relay.stop();
    expect(events).toEqual(["started", "stopped"]);
  });

  it("keeps its new session though the last one is left only now", async () => {
    const leaving = Promise.withResolvers<void>();
    const { relay, open } = stage({ leave: () => leaving.promise });
    await relay.start();
    await relay.stop({ deadlineMs: 1 });
    await relay.start();
    leaving.resolve();
    await sleep(10);
    expect([relay.state().running, open()]).toEqual([true, 1]);
    await relay.stop();
    expect(open()).toBe(0);
  });

  it("tends its new session though the work of the last one ends only now", async () => {
    const hanging = Promise.withResolvers<undefined>();
    let tended = 0;
    const { relay } = stage({ claim: () => hanging.promise, tend: async () => tended++ });
    await relay.start();
    await relay.stop({ deadlineMs: 1 });
    await relay.start();
    hanging.resolve(undefined);
    await sleep(10);
    const before = tended;
    await expect.poll(() => tended, { timeout: 3000 }).toBeGreaterThan(before);
    await relay.stop();
  });

  it("leaves a session that it gets long after the stop, and keeps its new one", async () => {
    const joining = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let joins = 0;
    const { relay, events, open } = stage({ join: () => joining[joins++]!.promise });
    const first = relay.start();
    await sleep(1);
    await relay.stop({ deadlineMs: 1 });
    const second = relay.start();
    await sleep(1);
    joining[0]!.resolve();
    await first;
    expect([open(), events]).toEqual([0, []]);
    joining[1]!.resolve();
    await second;
    expect([open(), relay.state().running, events]).toEqual([1, true, ["started"]]);
    await relay.stop();
    expect([open(), events]).toEqual([0, ["started", "stopped"]]);
  });

  it("starts after the stop that is under way", async () => {
    const { relay, events } = stage({ close: () => sleep(20) });
    await relay.start();
    const stopping = relay.stop();
    await relay.start();
    await stopping;
    expect(relay.state().running).toBe(true);
    expect(events).toEqual(["started", "stopped", "started"]);
    await relay.stop();
  });

  it("can be started anew after it failed, and stopped once it failed", async () => {
    let dropped = true;
    const { relay, events, calls, open } = stage({
      tend: async () => {
        if (dropped) throw new TxboxError("relay_dropped", "gone");
      },
    });
    await relay.start();
    await expect.poll(() => events.includes("failed")).toBe(true);
    dropped = false;
    await relay.start();
    expect([relay.state().running, open()]).toEqual([true, 1]);
    await relay.stop();
    dropped = true;
    await relay.start();
    await expect.poll(() => events.filter((type) => type === "failed").length).toBe(2);
    await relay.stop();
    expect([relay.state().running, open()]).toEqual([false, 0]);
    expect(calls.filter((call) => call === "close").length).toBe(2);
  });

  it("waits for a database that is away, and rejects what waiting cannot mend", async () => {
    let error: Error | undefined = new Error("Cannot use a pool after calling end on the pool");
    const { relay, events } = stage({
      join: async () => {
        if (error !== undefined) throw error;
      },
    });
    await expect(relay.start()).rejects.toThrow("after calling end");
    expect(relay.state().running).toBe(false);
    error = new Error("away");
    await relay.start();
    expect(events).toEqual(["store_error", "started"]);
    error = undefined;
    await relay.stop();
  });
});
