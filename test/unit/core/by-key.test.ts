import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { publishByKey } from "../../../src/core/by-key.ts";
import type { PublishProgress, PublishResult } from "../../../src/core/contracts.ts";
import { PermanentError, UnavailableError } from "../../../src/core/errors.ts";
import type { Message } from "../../../src/core/message.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { PublishSlots } from "../../../src/core/publish-slots.ts";

const { signal } = new AbortController();
const published: PublishResult = { status: "published" };
const m = (n: number, key: string | null, stream = "s") => ({ n, key, stream });
const silent = (kind: "new" | "retry"): PublishProgress => ({ kind, mayBegin: () => true, onResult: () => undefined });
const messagesOf = (count: number) => Array.from({ length: count }, (_, n) => m(n, null));

describe("publishByKey", () => {
  it("begins nothing more once it has thrown: the relay sends everything again", async () => {
    const begun: number[] = [];
    const publishing = publishByKey(
      messagesOf(20),
      async ({ n }) => {
        begun.push(n);
        await sleep(1);
        if (n === 0) throw new Error("a fault of the publisher");
        return published;
      },
      { concurrency: 2, signal },
    );
    await expect(publishing).rejects.toThrow("a fault of the publisher");
    await sleep(50);
    expect(begun.length).toBeLessThan(5);
  });

  it("keeps the order of a key, runs others beside it, and no more than allowed", async () => {
    const messages = Array.from({ length: 100 }, (_, n) => m(n, n % 10 === 0 ? null : `k${n % 7}`));
    const order: number[] = [];
    let running = 0;
    let most = 0;
    const results = await publishByKey(
      messages,
      async ({ n }) => {
        most = Math.max(most, ++running);
        await sleep(Math.random() * 3);
        order.push(n);
        running--;
        return published;
      },
      { concurrency: 5, signal },
    );
    expect(results).toEqual(messages.map(() => published));
    expect(most).toBe(5);
    for (let k = 0; k < 7; k++) {
      const ofKey = order.filter((n) => n % 10 !== 0 && n % 7 === k);
      expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
    }
  });

  it("begins nothing more once the lease is over, though the signal has not aborted yet", async () => {
    const begun: number[] = [];
    let over = false;
    const results = await publishByKey(
      [m(0, "a"), m(1, "b"), m(2, "a"), m(3, null), m(4, "b")],
      async ({ n }) => {
        begun.push(n);
        await sleep(1);
        over = true;
        return published;
      },
      { concurrency: 2, signal, progress: { kind: "new", mayBegin: () => !over } },
    );
    expect(begun).toEqual([0, 1]);
    const statuses = results.map(({ status }) => status);
    expect(statuses).toEqual(["published", "published", "unavailable", "unavailable", "unavailable"]);
  });

  it("stops a key at its first failure and nothing else", async () => {
    const tried: number[] = [];
    const messages = [m(0, "a"), m(1, "b"), m(2, "a"), m(3, null), m(4, "a", "other"), m(5, "b")];
    const results = await publishByKey(
      messages,
      async ({ n }) => {
        tried.push(n);
        return n === 0 ? { status: "failed", error: "x" } : published;
      },
      { concurrency: 1, signal },
    );
    expect(results.map(({ status }) => status)).toEqual([
      "failed",
      "published",
      "held",
      "published",
      "published",
      "published",
    ]);
    expect(tried).not.toContain(2);
  });

  it("begins nothing more once the target is out", async () => {
    let tried = 0;
    const results = await publishByKey(
      Array.from({ length: 50 }, (_, n) => m(n, null)),
      async ({ n }) => {
        tried++;
        await sleep(1);
        return n === 3 ? { status: "unavailable", error: "out" } : published;
      },
      { concurrency: 2, signal },
    );
    expect(tried).toBeLessThan(10);
    expect(results.filter(({ status }) => status === "unavailable").length).toBe(50 - (tried - 1));
  });

  it("begins nothing after the signal", async () => {
    const controller = new AbortController();
    const results = await publishByKey(
      Array.from({ length: 10 }, (_, n) => m(n, "k")),
      async ({ n }) => {
        if (n === 2) controller.abort();
        return published;
      },
      { concurrency: 3, signal: controller.signal },
    );
    expect(results.map(({ status }) => status)).toEqual([
      ...Array<string>(3).fill("published"),
      ...Array<string>(7).fill("unavailable"),
    ]);
  });

  it("goes on with other routes when one is out", async () => {
    const messages = [m(0, "a"), m(1, "b"), m(2, "a"), m(3, "c")];
    const results = await publishByKey(
      messages,
      async ({ n }) => (n === 0 ? { status: "unavailable", error: "full", route: "queue" } : published),
      { concurrency: 1, signal },
    );
    expect(results.map(({ status }) => status)).toEqual(["unavailable", "published", "held", "published"]);
  });

  it("tells each result at once, and does not wait for a message that takes long", async () => {
    const told: string[] = [];
    const long = Promise.withResolvers<PublishResult>();
    const progress: PublishProgress = {
      kind: "new",
      mayBegin: () => true,
      onResult: (index, { status }) => void told.push(`${index} ${status}`),
    };
    const messages = [m(0, "long"), m(1, "b"), m(2, "long"), ...Array.from({ length: 5 }, (_, n) => m(3 + n, null))];
    const publishing = publishByKey(messages, async ({ n }) => (n === 0 ? long.promise : published), {
      concurrency: 1,
      signal,
      progress,
    });
    await vi.waitUntil(() => told.length === 8, { timeout: 20_000 });
    // Its place went to others, and its key is held.
    expect(told.slice(0, 2)).toEqual(["0 running", "2 held"]);
    expect(told.slice(2).toSorted()).toEqual(["1", "3", "4", "5", "6", "7"].map((n) => `${n} published`));
    long.resolve({ status: "failed", error: "late" });
    const results = await publishing;
    expect(told.at(-1)).toBe("0 failed");
    expect(results.map(({ status }) => status)).toEqual([
      "failed",
      "published",
      "held",
      ...Array<string>(5).fill("published"),
    ]);
  });

  it("messages that take long, or are tried again, leave the quick places to new ones", async () => {
    const slots = new PublishSlots(2, 3);
    const never = new Promise<PublishResult>(() => undefined);
    let begun = 0;
    const hang = () => (begun++, never);
    void publishByKey(messagesOf(20), hang, { concurrency: 2, signal, slots, progress: silent("retry") });
    void publishByKey(messagesOf(20), hang, { concurrency: 2, signal, slots, progress: silent("new") });
    // Three of those that failed before, and two new ones, which stay where they are: the long places are taken.
    await sleep(100);
    expect(begun).toBe(5);
    begun = 0;
    const fresh = new PublishSlots(2, 3);
    void publishByKey(messagesOf(20), hang, { concurrency: 2, signal, slots: fresh, progress: silent("new") });
    // Three in long places, and half of the quick ones, or all of them if one began while none was known to take long.
    await vi.waitUntil(() => begun >= 4, { timeout: 20_000 });
    await sleep(80);
    expect(begun).toBeLessThanOrEqual(5);
  });

  it("keys that went through lately flow while many others take long, and the relay does not wait for those", async () => {
    const slots = new PublishSlots(4, 2);
    const good = Array.from({ length: 3 }, (_, n) => m(n, `good-${n}`));
    const options = { concurrency: 4, signal, slots };
    await publishByKey(good, async () => published, { ...options, progress: silent("new") });
    const told: string[] = [];
    const progress: PublishProgress = {
      kind: "new",
      mayBegin: () => true,
      onResult: (i, { status }) => void told.push(`${i} ${status}`),
    };
    let [slow, ended] = [0, 0];
    const each = async ({ key }: { key: string | null }): Promise<PublishResult> => {
      if (key!.startsWith("good")) return published;
      slow++;
      await sleep(300);
      ended++;
      return { status: "failed", error: "slow" };
    };
    const bad = Array.from({ length: 30 }, (_, n) => m(n, `bad-${n}`));
    const publishing = publishByKey(bad, each, { ...options, progress });
    await vi.waitUntil(() => told.length === 30, { timeout: 20_000 });
    expect(told.every((line) => line.endsWith("running"))).toBe(true);
    // Those in quick places are the last that wait for nothing: half of the places are theirs from now on.
    await sleep(350);
    for (let round = 0; round < 20; round++) {
      const before = ended;
      await publishByKey(good, each, { ...options, progress: silent("new") });
      expect(ended).toBe(before);
    }
    const results = await publishing;
    expect(slow).toBe(30);
    expect(results.every(({ status }) => status === "failed")).toBe(true);
    expect(told.length).toBe(60);
  });

  it("takes no messages", async () => {
    expect(await publishByKey([], async () => published, { concurrency: 3, signal })).toEqual([]);
  });
});

describe("publishEach", () => {
  it("makes results of what is thrown", async () => {
    const errors: Record<string, Error> = {
      a: new Error("a"),
      b: new PermanentError("b"),
      c: new UnavailableError("c"),
    };
    const publisher = publishEach(
      async ({ key }) => {
        const error = errors[String(key)];
        if (error !== undefined) throw error;
      },
      { concurrency: 1 },
    );
    const messages = ["d", "a", "b", "c"].map((key) => ({ ...m(0, key) }) as unknown as Message);
    expect((await publisher.publish(messages, signal)).map(({ status }) => status)).toEqual([
      "published",
      "failed",
      "rejected",
      "unavailable",
    ]);
    expect(publisher.keepsKeyOrder).toBe(true);
  });

  it("gives up a message without an answer, and aborts its signal", async () => {
    let aborted = false;
    const publisher = publishEach(
      ({ key }, given) =>
        key === "b"
          ? Promise.resolve()
          : new Promise(() => given.addEventListener("abort", () => void (aborted = true))),
      { timeoutMs: 20 },
    );
    const messages = ["a", "b"].map((key) => ({ ...m(0, key) }) as unknown as Message);
    const [hung, sent] = await publisher.publish(messages, signal);
    expect(hung).toMatchObject({ status: "failed", error: { code: "handler_timeout" } });
    expect(sent).toEqual(published);
    expect(aborted).toBe(true);
  });

  it("takes route and pause of an UnavailableError", async () => {
    const publisher = publishEach(async () => {
      throw new UnavailableError("busy", { route: "https://a.example", retryAfterMs: 5000 });
    });
    const results = await publisher.publish([m(0, "a") as unknown as Message], signal);
    expect(results).toMatchObject([{ status: "unavailable", route: "https://a.example", retryAfterMs: 5000 }]);
  });

  it("refuses wrong options", () => {
    expect(() => publishEach(async () => undefined, { concurency: 1 } as never)).toThrow('Did you mean "concurrency"?');
    expect(() => publishEach(async () => undefined, { concurrency: 0 })).toThrow("concurrency");
  });
});
