import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type Batch, createPublisher, givenUp } from "../../../src/adapter/index.ts";
import type { PublishProgress, PublishResult } from "../../../src/core/contracts.ts";
import { samples } from "../../../src/testing/broker/sample-message.ts";

const never = new AbortController().signal;
const batch = samples("s", ["a"], 2);
const all = (status: "published" | "unavailable"): PublishResult[] => batch.map(() => ({ status }));
const progress = (mayBegin: () => boolean): PublishProgress => ({ kind: "retry", mayBegin });

function publisherOf(publish: (given: Batch) => Promise<readonly PublishResult[]>) {
  const log: string[] = [];
  const publisher = createPublisher({
    keepsKeyOrder: true,
    publish: (given) => (log.push("publish"), publish(given)),
    close: () => void log.push("close"),
  });
  return { publisher, log };
}

describe("createPublisher", () => {
  test("gives nothing to a broker of an empty batch, or of one whose lease is over", async () => {
    const { publisher, log } = publisherOf(async () => all("published"));
    expect(await publisher.publish([], never)).toEqual([]);
    expect(await publisher.publish(batch, AbortSignal.abort())).toEqual(all("unavailable"));
    const over = progress(() => false);
    expect(await publisher.publish(batch, never, over)).toEqual(all("unavailable"));
    expect(log).toEqual([]);
  });

  test("a lease that was over once stays so for the batch, also when it is renewed", async () => {
    const answers = [true, true, false, true];
    const { publisher } = publisherOf(async ({ mayBegin, kind }) => {
      expect(kind).toBe("retry");
      expect([mayBegin(), mayBegin(), mayBegin()]).toEqual([true, false, false]);
      return all("published");
    });
    await publisher.publish(
      batch,
      never,
      progress(() => answers.shift() ?? true),
    );
  });

  test("what is under way ends before it is closed; nothing more is begun", async () => {
    const going = Promise.withResolvers<void>();
    const { publisher, log } = publisherOf(async ({ mayBegin }) => {
      expect(mayBegin()).toBe(true);
      await going.promise;
      expect(mayBegin()).toBe(false);
      log.push("done");
      return all("published");
    });
    const publishing = publisher.publish(batch, never);
    const closing = Promise.all([publisher.close?.(), publisher.close?.()]);
    await sleep(5);
    going.resolve();
    expect(await publishing).toEqual(all("published"));
    await closing;
    expect(log).toEqual(["publish", "done", "close"]);
    await expect(publisher.publish(batch, never)).rejects.toThrow(/closed/);
  });

  test("what is given up says why: a stop at its deadline is no lost lease", async () => {
    const stop = new AbortController();
    const { publisher } = publisherOf(({ signal }) => {
      const { promise, reject } = Promise.withResolvers<never>();
      signal.addEventListener("abort", () => reject(givenUp(signal)));
      return promise;
    });
    const publishing = publisher.publish(batch, stop.signal);
    stop.abort(new Error("the stop has reached its deadline"));
    await expect(publishing).rejects.toThrow("Given up: the stop has reached its deadline");
  });
});
