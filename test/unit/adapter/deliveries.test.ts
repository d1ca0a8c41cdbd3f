import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import {
  Deliveries,
  type Delivery,
  readOptions,
  SUBSCRIBER_OPTIONS,
  type SubscriberEvent,
  type SubscriberOptions,
  subscriberSettings,
} from "../../../src/adapter/index.ts";
import type { Handle, HandleResult } from "../../../src/core/contracts.ts";

const DONE: HandleResult = { status: "done" };

type Options = Pick<SubscriberOptions, "concurrency" | "prefetch" | "prefetchBytes" | "maxAttempts">;

function bench(handle: Handle, options: Options & { backoffMs?: number } = {}) {
  const { backoffMs, ...others } = options;
  const log: string[] = [];
  const events: SubscriberEvent[] = [];
  const read = readOptions(
    "test",
    {
      ...others,
      backoff: backoffMs === undefined ? { baseMs: 2, maxMs: 5 } : { baseMs: backoffMs, maxMs: backoffMs },
      onEvent: (event: SubscriberEvent) => events.push(event),
    },
    SUBSCRIBER_OPTIONS,
  );
  const settings = { ...subscriberSettings(read), outageBackoff: { baseMs: 2, maxMs: 5 } };
  const deliveries = new Deliveries("c", handle, settings);
  const connection = new AbortController();
  const take = (id: string, key: string | null, more: Partial<Delivery> = {}): void =>
    deliveries.take({
      message: { id, key, stream: "s", body: "", headers: {} },
      attempts: 0,
      signal: connection.signal,
      done: () => void log.push(`done ${id}`),
      moveToDeadLetters: async (error, attempts) =>
        void log.push(`moveToDeadLetters ${id} ${(error as Error).message} ${attempts}`),
      release: () => void log.push(`release ${id}`),
      ...more,
    });
  return { deliveries, take, log, events, connection };
}

async function idle(deliveries: Deliveries): Promise<void> {
  for (let i = 0; i < 500 && deliveries.inHand > 0; i++) await sleep(2);
  expect(deliveries.inHand).toBe(0);
}

describe("deliveries", () => {
  test("what is in hand behind one that was lost is given back, so that it is not handled before that comes again", async () => {
    const handled: string[] = [];
    const lost = new AbortController();
    const { deliveries, take, log } = bench(async ({ id }) => {
      handled.push(String(id));
      if (id !== "a1" || lost.signal.aborted) return DONE;
      await sleep(5);
      lost.abort();
      return { status: "failed", error: new Error("no") };
    });
    take("a1", "a", { signal: lost.signal });
    take("a2", "a");
    take("b1", "b");
    await idle(deliveries);
    expect(handled.toSorted()).toEqual(["a1", "b1"]);
    expect(log.filter((line) => line.includes(" a"))).toEqual(["release a1", "release a2"]);
    take("a1", "a");
    take("a2", "a");
    await idle(deliveries);
    expect(handled.slice(-2), "what comes afterwards is handled as ever").toEqual(["a1", "a2"]);
  });

  test("messages of a key go one after another, others beside them, never more than `concurrency`", async () => {
    let [running, most] = [0, 0];
    const order: string[] = [];
    const { deliveries, take, log } = bench(
      async ({ id, key }) => {
        most = Math.max(most, ++running);
        await sleep(key === "slow" ? 200 : 1);
        running--;
        order.push(String(id));
        return DONE;
      },
      { concurrency: 2 },
    );
    take("s1", "slow");
    take("s2", "slow");
    for (const id of ["a1", "a2", "a3"]) take(id, "a");
    take("n", null);
    await idle(deliveries);
    expect(most).toBe(2);
    expect(order.filter((id) => id.startsWith("a"))).toEqual(["a1", "a2", "a3"]);
    expect(order.indexOf("a3")).toBeLessThan(order.indexOf("s1"));
    expect(log).toHaveLength(6);
  });

  test("a failed message is tried in place; its key waits and other keys do not", async () => {
    const tries = new Map<string, number>();
    const { deliveries, take, log, events } = bench(
      async ({ id }) => {
        const n = (tries.get(String(id)) ?? 0) + 1;
        tries.set(String(id), n);
        return id === "k1" && n < 3 ? { status: "failed", error: new Error("no") } : DONE;
      },
      { concurrency: 1 },
    );
    take("k1", "k");
    take("k2", "k");
    take("o1", "o");
    await idle(deliveries);
    expect(log).toEqual(["done o1", "done k1", "done k2"]);
    expect(events.map(({ type }) => type)).toEqual(["retry", "retry"]);
  });

  test("after its attempts, those that the broker counted included, a message is died", async () => {
    const { deliveries, take, log, events } = bench(async () => ({ status: "failed", error: new Error("no") }), {
      maxAttempts: 4,
    });
    take("a", "k", { attempts: 2 });
    await idle(deliveries);
    expect(log).toEqual(["moveToDeadLetters a no 4"]);
    expect(events.at(-1)).toMatchObject({ type: "dead", id: "a", attempts: 4, error: "Error: no" });
  });

  test("a dead letter that cannot be put aside is kept until it can", async () => {
    let refusals = 3;
    const { deliveries, take, log, events } = bench(async () => ({ status: "rejected", error: new Error("no") }));
    take("a", "k", {
      moveToDeadLetters: async () => {
        if (refusals-- > 0) throw new Error("the exchange is gone");
        log.push("died");
      },
    });
    take("b", "k");
    await idle(deliveries);
    expect(log).toEqual(["died", "moveToDeadLetters b no 1"]);
    expect(events.map(({ type }) => type)).toEqual(["outage", "outage", "outage", "recovered", "dead", "dead"]);
  });

  test("a broken one is died without being handled", async () => {
    let handled = 0;
    const { deliveries, take, log } = bench(async () => (handled++, DONE));
    take("a", "k", { broken: new Error("bad") });
    await idle(deliveries);
    expect([handled, log]).toEqual([0, ["moveToDeadLetters a bad 0"]]);
  });

  test("an outage of what the handler needs counts no attempt", async () => {
    let n = 0;
    const { deliveries, take, log } = bench(
      async () => (++n < 8 ? { status: "unavailable", error: new Error("out") } : DONE),
      { maxAttempts: 2 },
    );
    take("a", "k");
    await idle(deliveries);
    expect(log).toEqual(["done a"]);
  });

  test("stop waits for what has begun and releases the rest", async () => {
    const gate = Promise.withResolvers<void>();
    const { deliveries, take, log, events } = bench(
      async () => {
        await gate.promise;
        return DONE;
      },
      { concurrency: 1 },
    );
    take("a1", "a");
    take("a2", "a");
    take("b1", "b");
    const stopping = deliveries.stop();
    await sleep(5);
    expect(log).toEqual(["release b1"]);
    gate.resolve();
    await stopping;
    expect(log.sort()).toEqual(["done a1", "release a2", "release b1"]);
    expect(events.map(({ type }) => type)).toEqual(["stopped"]);
  });

  test("what the broker took away is not begun; what has begun ends before its repeat begins", async () => {
    const gate = Promise.withResolvers<void>();
    const handled: string[] = [];
    const { deliveries, take, log, connection } = bench(async ({ id }) => {
      if (handled.length === 0) await gate.promise;
      handled.push(String(id));
      return DONE;
    });
    take("a1", "a");
    take("a2", "a");
    connection.abort();
    const again = new AbortController().signal;
    take("a1", "a", { signal: again });
    take("a2", "a", { signal: again });
    await sleep(5);
    expect(handled).toEqual([]);
    gate.resolve();
    await idle(deliveries);
    expect(handled).toEqual(["a1", "a1", "a2"]);
    expect(log).toEqual(["done a1", "release a2", "done a1", "done a2"]);
  });

  test("when the end is near, what has begun ends undisturbed and nothing else is begun or tried again", async () => {
    const [gate, ending] = [Promise.withResolvers<void>(), new AbortController()];
    const handled: string[] = [];
    const { deliveries, take, log } = bench(
      async ({ id }, signal) => {
        handled.push(String(id));
        if (id === "b1") return { status: "failed", error: new Error("later") };
        await gate.promise;
        expect(signal.aborted).toBe(false);
        return DONE;
      },
      { concurrency: 2, backoffMs: 2_000_000_000 },
    );
    for (const id of ["a1", "a2"]) take(id, "a", { ending: ending.signal });
    take("b1", "b", { ending: ending.signal });
    await sleep(5);
    take("c1", "c", { ending: ending.signal });
    take("d1", "d", { ending: ending.signal });
    await sleep(5);
    ending.abort();
    await sleep(5);
    expect(log).toEqual(["release b1"]);
    gate.resolve();
    await idle(deliveries);
    expect(handled).toEqual(["a1", "b1", "c1"]);
    expect(log.sort()).toEqual(["done a1", "done c1", "release a2", "release b1", "release d1"]);
  });

  test("a message without a key is not handled beside its own repeat, but beside others", async () => {
    const running = new Set<string>();
    let [most, beside] = [0, false];
    const { deliveries, take } = bench(async ({ id }) => {
      beside ||= running.has(String(id));
      running.add(String(id));
      most = Math.max(most, running.size);
      await sleep(10);
      running.delete(String(id));
      return DONE;
    });
    for (const id of ["a", "b", "a", "b"]) take(id, null);
    await idle(deliveries);
    expect({ most, beside }).toEqual({ most: 2, beside: false });
  });

  test("a failed message without a key goes back to a broker that can wait with it; one with a key stays", async () => {
    const { deliveries, take, log } = bench(async () => ({ status: "failed", error: new Error("no") }), {
      maxAttempts: 2,
    });
    const postpone = (id: string) => (delayMs: number) => {
      log.push(`postpone ${id} ${delayMs <= 5}`);
      return id !== "refused";
    };
    take("free", null, { postpone: postpone("free") });
    take("refused", null, { postpone: postpone("refused") });
    take("keyed", "a", { postpone: postpone("keyed") });
    await idle(deliveries);
    expect(log.sort()).toEqual([
      "moveToDeadLetters keyed no 2",
      "moveToDeadLetters refused no 2",
      "postpone free true",
      "postpone refused true",
    ]);
  });

  test("an acknowledgement that cannot be sent stops nothing", async () => {
    const { deliveries, take, log, events } = bench(async () => DONE);
    take("a1", "a", {
      done: () => {
        throw new Error("closed");
      },
    });
    take("a2", "a");
    await idle(deliveries);
    expect(log).toEqual(["done a2"]);
    expect(events).toMatchObject([{ type: "outage", error: "Error: closed" }]);
  });

  test.each([
    ["messages", { prefetch: 2 }],
    ["bytes", { prefetchBytes: 2 }],
  ])("room waits until few enough %s are in hand", async (_, limit) => {
    const gate = Promise.withResolvers<void>();
    const { deliveries, take } = bench(async () => (await gate.promise, DONE), limit);
    const message = { key: null, body: "x", headers: {} };
    take("a", null, { message });
    expect(deliveries.hasRoom).toBe(true);
    take("b", null, { message });
    expect([deliveries.hasRoom, deliveries.bytes]).toEqual([false, 2]);
    let room = false;
    const waiting = deliveries.room().then(() => (room = true));
    await sleep(5);
    expect(room).toBe(false);
    gate.resolve();
    await waiting;
    await deliveries.empty();
    expect([deliveries.inHand, deliveries.bytes]).toEqual([0, 0]);
  });
});
