import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { describe, expect, it } from "vitest";
import type { Claim, Publisher, PublishResult, QueueSession, Store } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { publishClaim } from "../../../src/relay/publish-claim.ts";
import type { PublishOperation, RelayEvent } from "../../../src/core/events.ts";
import { type RelayOptions, relaySettings } from "../../../src/relay/relay-options.ts";
import { RouteOutages } from "../../../src/relay/route-outages.ts";
import { TargetOutage } from "../../../src/relay/target-outage.ts";
import { type FakeClock, fakeClock } from "../../../src/testing/fake-clock.ts";
import { claimOf, message } from "./sample-claim.ts";

const PUBLISHED: PublishResult = { status: "published" };
const FAILED: PublishResult = { status: "failed", error: new Error("it failed") };
const OUT: PublishResult = { status: "unavailable", error: new Error("circuit open") };
/** A loop without a pause would never let the test's own timers run. */
const TOO_MANY_CALLS = 100;

/** Only what publishing a claim asks of its session. */
function sessionOf(admitted: readonly boolean[] | "all" = "all"): QueueSession {
  const session: Partial<QueueSession> = {
    validUntil: 1_000_000,
    isCurrent: () => true,
    admit: () => admitted,
    pauseAttempt: async () => undefined,
    resumeAttempt: async () => undefined,
  };
  return session as QueueSession;
}

interface Bench {
  readonly clock: FakeClock;
  readonly events: RelayEvent[];
  readonly calls: readonly string[][];
  readonly publish: (claim: Claim, session?: QueueSession) => ReturnType<typeof publishClaim>;
}

function bench(
  results: (call: number, messages: readonly Message[]) => readonly PublishResult[],
  options: Partial<RelayOptions> = {},
): Bench {
  const clock = fakeClock();
  const events: RelayEvent[] = [];
  const calls: string[][] = [];
  const publisher: Publisher = {
    keepsKeyOrder: true,
    publish: async (messages) => {
      calls.push(messages.map(({ id }) => id));
      if (calls.length > TOO_MANY_CALLS) return messages.map(() => PUBLISHED);
      return results(calls.length, messages);
    },
  };
  const store = { queue: { join: () => Promise.reject(new Error("no process joins")) } } as unknown as Store;
  const settings = relaySettings({
    store,
    name: "orders",
    publisher,
    clock,
    onEvent: (event) => void events.push(event),
    ...options,
  });
  const stop = { stopping: new AbortController().signal, giveUp: new AbortController().signal };
  return {
    clock,
    events,
    calls,
    publish: (claim, session = sessionOf()) =>
      publishClaim(claim, {
        session,
        settings,
        stop,
        target: new TargetOutage(settings),
        routes: new RouteOutages(settings),
      }),
  };
}

const typesOf = (events: readonly RelayEvent[]) => events.map(({ type }) => type);
const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("a failed message of an unordered stream, then an outage", () => {
  /** The first fails and holds the second back; then the target is out until the fifth call. */
  const failThenOut = (call: number, messages: readonly Message[]): PublishResult[] => {
    if (call === 1) return [FAILED, { status: "unavailable" }];
    return messages.map(() => (call < 5 ? OUT : PUBLISHED));
  };

  it("is waited out, with a pause between attempts", async () => {
    const { clock, events, calls, publish } = bench(failThenOut, { unordered: ["orders"] });
    const publishing = publish(claimOf([message(1), message(2)]));
    await turn();
    // What was held back goes again at once: only then is it known that the target is out.
    expect(calls).toEqual([["m-1", "m-2"], ["m-2"]]);
    expect(typesOf(events)).toEqual(["retry", "outage"]);
    expect(clock.sleeping).toBe(1);
    for (let i = 0; i < 3; i++) await clock.advance(10_000);
    const { outcomes } = await publishing;
    expect(outcomes.map(({ status }) => status)).toEqual(["retry", "published"]);
    expect(calls).toHaveLength(5);
    expect(typesOf(events)).toEqual(["retry", "outage", "outage", "outage", "recovered"]);
  });

  it("holds nothing up when only that message failed", async () => {
    const { events, calls, publish } = bench(
      (call) => (call === 1 ? [FAILED, { status: "unavailable" }] : [PUBLISHED]),
      { unordered: ["orders"] },
    );
    const { outcomes } = await publish(claimOf([message(1), message(2)]));
    expect(outcomes.map(({ status }) => status)).toEqual(["retry", "published"]);
    expect(calls).toHaveLength(2);
    expect(typesOf(events)).toEqual(["retry"]);
  });

  it("in an ordered stream what was held back waits, and there is no outage", async () => {
    const { events, calls, publish } = bench(failThenOut);
    const { outcomes } = await publish(claimOf([message(1), message(2)]));
    expect(outcomes.map(({ status }) => status)).toEqual(["retry", "waiting"]);
    expect(calls).toHaveLength(1);
    expect(typesOf(events)).toEqual(["retry"]);
  });
});

describe("what comes behind a failed message of its key", () => {
  it.each<PublishResult>([
    OUT,
    { status: "unavailable" },
    { status: "unavailable", error: new Error("full"), route: "queue" },
    { status: "held" },
    FAILED,
  ])("waits and is not sent again, whatever the publisher says: %j", async (behind) => {
    const { calls, publish } = bench(() => [FAILED, behind]);
    const { outcomes } = await publish(claimOf([message(1), message(2)]));
    expect(outcomes.map(({ status }) => status)).toEqual(["retry", "waiting"]);
    expect(calls).toHaveLength(1);
  });
});

describe("a message with which processes have died too often", () => {
  const none = () => [];
  const killer = claimOf([message(1)], { alone: true, crashes: 3 });

  it("is dead and blocks its key, where that is wanted", async () => {
    const { calls, publish } = bench(none, { onDead: "block" });
    expect((await publish(killer)).outcomes).toMatchObject([{ status: "dead", block: true, attempts: 3 }]);
    expect(calls).toEqual([]);
  });

  it.each([
    ["without a key", claimOf([message(1, null)], { alone: true, crashes: 3 }), []],
    ["in a stream that needs no order", killer, ["orders"]],
  ])("blocks nothing %s", async (_, claim, unordered) => {
    const { publish } = bench(none, { onDead: "block", unordered });
    expect((await publish(claim)).outcomes).toMatchObject([{ status: "dead", block: false }]);
  });

  it("waits when its key waits: it was not tried", async () => {
    const { calls, events, publish } = bench(none, { onDead: "block" });
    expect((await publish(killer, sessionOf([false]))).outcomes).toEqual([{ status: "waiting" }]);
    expect(calls).toEqual([]);
    expect(events).toEqual([]);
  });
});

describe("a message that cannot be read", () => {
  /** As a store makes its fields on demand. */
  const unreadable = (n: number, key: string | null): Message => ({
    ...message(n, key),
    get body(): string {
      throw new Error("there is none");
    },
  });
  const read = (_: number, messages: readonly Message[]) =>
    messages.map(({ body }) => (body === "{}" ? PUBLISHED : FAILED));

  it("makes its publisher throw, is dead at once, and holds up only its key", async () => {
    const { publish, calls, events } = bench(read, { onDead: "block" });
    const messages = [message(1, "a"), unreadable(2, "b"), message(3, "b"), unreadable(4, null), message(5, "c")];
    const { outcomes } = await publish(claimOf(messages));
    expect(outcomes).toMatchObject([
      { status: "published" },
      { status: "dead", error: expect.stringContaining("there is none"), attempts: 1, block: true },
      { status: "waiting" },
      { status: "dead", block: false },
      { status: "published" },
    ]);
    expect(calls).toEqual([
      ["m-1", "m-2", "m-3", "m-4", "m-5"],
      ["m-1", "m-5"],
    ]);
    expect(events).toEqual([]);
  });

  it("waits for its turn behind others of its key", async () => {
    const { publish } = bench(read);
    const { outcomes } = await publish(claimOf([message(1), unreadable(2, "k"), message(3)]));
    expect(outcomes).toMatchObject([{ status: "published" }, { status: "waiting" }, { status: "waiting" }]);
  });
});

describe("a lease that ends in the middle of a batch", () => {
  it("lets nothing more begin, and says nothing against the target", async () => {
    const begun: string[] = [];
    const publisher = publishEach(
      async ({ id }) => {
        begun.push(id);
        // The process stands still: no timer runs, so that the signal has not aborted when it wakes up.
        await clock.advance(2_000_000);
      },
      { concurrency: 1 },
    );
    const { clock, events, publish } = bench(() => [], { publisher });
    const publishing = publish(claimOf([message(1), message(2), message(3)]));
    await expect(publishing).rejects.toMatchObject({ code: "lease_lost" });
    expect(begun).toEqual(["m-1"]);
    expect(events).toEqual([]);
  });

  it("and so does a claim that is void, whatever the clock says", async () => {
    const begun: string[] = [];
    const session = { ...sessionOf(), isCurrent: () => begun.length === 0 };
    const { events, publish } = bench(() => [], {
      publisher: publishEach(async ({ id }) => void begun.push(id), { concurrency: 1 }),
    });
    const publishing = publish(claimOf([message(1), message(2)]), session);
    await expect(publishing).rejects.toMatchObject({ code: "lease_lost" });
    expect(begun).toEqual(["m-1"]);
    expect(events).toEqual([]);
  });

  it("a message tried alone is waited for, and its publisher may ask as well", async () => {
    const asked: (boolean | undefined)[] = [];
    const publisher: Publisher = {
      keepsKeyOrder: true,
      publish: async (messages, _, progress) => {
        asked.push(progress?.mayBegin(), progress?.onResult !== undefined);
        return messages.map(() => PUBLISHED);
      },
    };
    const { publish } = bench(() => [], { publisher });
    const { outcomes } = await publish({ ...claimOf([message(1)]), alone: true });
    expect(outcomes).toEqual([PUBLISHED]);
    expect(asked).toEqual([true, false]);
  });
});

it("tells listeners what was published before the publisher threw", async () => {
  const told: (readonly unknown[] | undefined)[] = [];
  const listen = (event: unknown) => told.push((event as PublishOperation).results);
  subscribe("txbox:relay:publish:end", listen);
  let calls = 0;
  const publisher: Publisher = {
    keepsKeyOrder: true,
    publish: async (messages, _, progress) => {
      if (++calls > 1) return messages.map(() => PUBLISHED);
      progress?.onResult?.(0, PUBLISHED);
      throw new Error("connection lost");
    },
  };
  const { clock, publish } = bench(() => [], { publisher });
  const publishing = publish(claimOf([message(1), message(2)]));
  await turn();
  await clock.advance(10_000);
  const { outcomes } = await publishing;
  unsubscribe("txbox:relay:publish:end", listen);
  expect(outcomes.map(({ status }) => status)).toEqual(["published", "published"]);
  expect(told).toEqual([[PUBLISHED, undefined], [PUBLISHED]]);
});
