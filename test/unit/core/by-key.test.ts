import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { publishByKey } from "../../../src/core/by-key.ts";
import type { PublishResult } from "../../../src/core/contracts.ts";
import { PermanentError, UnavailableError } from "../../../src/core/errors.ts";
import type { Message } from "../../../src/core/message.ts";
import { publishEach } from "../../../src/core/publish-each.ts";

const { signal } = new AbortController();
const published: PublishResult = { status: "published" };
const m = (n: number, key: string | null, stream = "s") => ({ n, key, stream });

describe("publishByKey", () => {
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
      "unavailable",
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

  it("refuses wrong options", () => {
    expect(() => publishEach(async () => undefined, { concurency: 1 } as never)).toThrow('Did you mean "concurrency"?');
    expect(() => publishEach(async () => undefined, { concurrency: 0 })).toThrow("concurrency");
  });
});
