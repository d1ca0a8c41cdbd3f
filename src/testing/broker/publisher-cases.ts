import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { PublishProgress, PublishResult } from "../../core/contracts.ts";
import { within } from "../eventually.ts";
import { fakeClock, type FakeClock } from "../fake-clock.ts";
import type { PublisherCase } from "./broker-context.ts";
import { assertSameMessage, hostileSamples, idsOf, payloadsOf, richSample, sample, samples } from "./sample-message.ts";

const role = "publisher";
const never = (): AbortSignal => new AbortController().signal;

export function assertAllPublished(results: readonly PublishResult[], count: number): void {
  assert.deepEqual(
    results,
    Array.from({ length: count }, () => ({ status: "published" })),
  );
}

/** The lease of a batch, by a clock that jumps, as it does in a process that stood still. */
function leaseOf(clock: FakeClock, leaseMs: number) {
  let [asked, pauseAt, pauseMs] = [0, Number.POSITIVE_INFINITY, 0];
  const progress: PublishProgress = {
    kind: "new",
    mayBegin() {
      if (++asked === pauseAt) void clock.advance(pauseMs);
      return clock.monotonic() < leaseMs;
    },
  };
  return {
    progress,
    /** So many times it was asked whether a message may begin. */
    get asked() {
      return asked;
    },
    pauseBefore(nth: number, ms: number) {
      [pauseAt, pauseMs] = [nth, ms];
    },
  };
}

/** Batches, confirms, order and content. */
export const publisherCases: readonly PublisherCase[] = [
  {
    role,
    name: "confirms each message of a batch once it has arrived",
    async run({ publisher, stream, arrived }) {
      const batch = samples(stream, ["a", "b", null], 4);
      assertAllPublished(await publisher.publish(batch, never()), batch.length);
      assert.deepEqual(idsOf(await arrived(batch.length)).sort(), idsOf(batch).sort());
    },
  },
  {
    role,
    name: "carries every field and header, Unicode included",
    async run({ publisher, stream, arrived }) {
      const message = richSample(stream);
      assertAllPublished(await publisher.publish([message], never()), 1);
      assertSameMessage((await arrived(1))[0], message);
    },
  },
  {
    role,
    name: "speaks CloudEvents, with every field and header",
    needs: ["cloudEvents"],
    async run({ cloudEvents, stream, arrived }) {
      const batch = [richSample(stream), sample(stream, null, { key: null, headers: {} })];
      assertAllPublished((await cloudEvents?.publish(batch, never())) ?? [], 2);
      const got = await arrived(2);
      for (const message of batch)
        assertSameMessage(
          got.find(({ id }) => id === message.id),
          message,
        );
    },
  },
  {
    role,
    name: "changes nothing of names and values that mean something elsewhere",
    async run({ publisher, stream, arrived }) {
      const batch = hostileSamples(stream);
      assertAllPublished(await publisher.publish(batch, never()), batch.length);
      const got = await arrived(batch.length);
      for (const message of batch)
        assertSameMessage(
          got.find(({ id }) => id === message.id),
          message,
        );
    },
  },
  {
    role,
    name: "leaves absent what is absent",
    async run({ publisher, stream, arrived }) {
      const message = sample(stream, null, { key: null, headers: {} });
      assertAllPublished(await publisher.publish([message], never()), 1);
      assertSameMessage((await arrived(1))[0], message);
    },
  },
  {
    role,
    name: "carries any body: text, bytes, nothing, and a large one",
    async run({ publisher, stream, arrived }) {
      const bytes = { contentType: "application/octet-stream" };
      const batch = [
        sample(stream, null, { body: '"ü🎉"' }),
        sample(stream, null, { body: Uint8Array.from({ length: 256 }, (_, i) => i), headers: bytes }),
        sample(stream, null, { body: new Uint8Array(0), headers: bytes }),
        sample(stream, null, { body: JSON.stringify("x".repeat(100_000)) }),
      ];
      assertAllPublished(await publisher.publish(batch, never()), batch.length);
      const got = await arrived(batch.length);
      for (const message of batch)
        assertSameMessage(
          got.find(({ id }) => id === message.id),
          message,
        );
    },
  },
  {
    role,
    name: "sends nothing that was only prepared, and what was prepared once",
    async run({ publisher, stream, arrived }) {
      const [first, second, unsent] = [samples(stream, ["a"], 3), samples(stream, ["b"], 3), samples(stream, ["c"], 3)];
      publisher.prepare?.(first);
      assertAllPublished(await publisher.publish(first, never()), 3);
      publisher.prepare?.(unsent);
      publisher.prepare?.(second);
      // Other messages than the announced ones.
      const rest = second.slice(1);
      assertAllPublished(await publisher.publish(second.slice(0, 1), never()), 1);
      const publishing = publisher.publish(rest, never());
      publisher.prepare?.(unsent);
      assertAllPublished(await publishing, 2);
      const got = await arrived(6);
      await sleep(100);
      assert.deepEqual(idsOf(got).sort(), idsOf([...first, ...second]).sort());
      assert.deepEqual(idsOf(await arrived(6)).sort(), idsOf(got).sort());
    },
  },
  {
    role,
    name: "keeps the order of a key, within a batch and across batches",
    async run({ publisher, stream, arrived }) {
      const keys = ["a", "b", "c", "d", "e"];
      const all = samples(stream, keys, 30);
      for (let from = 0; from < all.length; from += 50) {
        // A publisher that does not keep the order of a key gets one message of a key at a time.
        const batch = all.slice(from, from + 50);
        const waves = publisher.keepsKeyOrder ? [batch] : batch.map((message) => [message]);
        for (const wave of waves) assertAllPublished(await publisher.publish(wave, never()), wave.length);
      }
      const got = await arrived(all.length);
      for (const key of keys) assert.deepEqual(payloadsOf(got, key), payloadsOf(all, key), key);
    },
  },
  {
    role,
    name: "takes an empty batch and a batch of a thousand",
    async run({ publisher, stream, arrived }) {
      assert.deepEqual(await publisher.publish([], never()), []);
      const keys = Array.from({ length: 1000 }, (_, i) => `k${i}`);
      const batch = samples(stream, keys, 1);
      assertAllPublished(await publisher.publish(batch, never()), batch.length);
      assert.equal(new Set(idsOf(await arrived(batch.length))).size, 1000);
    },
  },
  {
    role,
    name: "serves two batches at once",
    async run({ publisher, stream, arrived }) {
      const [one, two] = [samples(stream, ["a"], 10), samples(stream, ["b"], 10)];
      const [first, second] = await Promise.all([publisher.publish(one, never()), publisher.publish(two, never())]);
      assertAllPublished(first, 10);
      assertAllPublished(second, 10);
      const got = await arrived(20);
      assert.deepEqual(payloadsOf(got, "a"), payloadsOf(one, "a"));
      assert.deepEqual(payloadsOf(got, "b"), payloadsOf(two, "b"));
    },
  },
  {
    role,
    name: "sends nothing when the lease is lost already",
    async run({ publisher, stream, arrived }) {
      const results = await publisher.publish(samples(stream, ["a"], 3), AbortSignal.abort()).catch(() => []);
      assert.ok(results.every(({ status }) => status === "unavailable"));
      await sleep(50);
      assert.equal((await arrived(0)).length, 0);
    },
  },
  {
    role,
    name: "begins nothing more when the lease ends in the middle of a batch",
    async run({ publisher, stream, arrived }) {
      const clock = fakeClock();
      const lease = leaseOf(clock, 1000);
      // More than goes out in one request or one record batch, and one key, so that it cannot go out all at once.
      const body = JSON.stringify("x".repeat(10_000));
      const batch = Array.from({ length: 400 }, () => sample(stream, null, { key: "a", body }));
      // The process stands still before its third send: no timer runs meanwhile, and the signal does not abort.
      lease.pauseBefore(3, 5000);
      const waves = publisher.keepsKeyOrder ? [batch] : batch.map((message) => [message]);
      const results: PublishResult[] = [];
      for (const wave of waves) results.push(...(await publisher.publish(wave, never(), lease.progress)));
      assert.ok(lease.asked >= 3, `the publisher asked ${lease.asked} times whether it may begin`);
      const confirmed = results.filter(({ status }) => status === "published").length;
      assert.ok(confirmed < batch.length, "all of the batch went out");
      assert.ok(results.slice(confirmed).every(({ status }) => status === "unavailable" || status === "held"));
      await sleep(100);
      assert.deepEqual(idsOf(await arrived(confirmed)), idsOf(batch.slice(0, confirmed)));
    },
  },
  {
    role,
    name: "comes back soon when the lease is lost while the target does not answer",
    needs: ["hanging"],
    async run({ publisher, stream, hang }) {
      const release = await hang?.();
      const lease = new AbortController();
      const publishing = publisher.publish(samples(stream, ["a", "b"], 3), lease.signal).catch(() => []);
      await sleep(50);
      lease.abort();
      const results = await within(2000, "the end of publishing after its signal aborted", publishing);
      assert.ok(results.every(({ status }) => status !== "published"));
      await release?.();
    },
  },
  {
    role,
    name: "finishes or gives up what is in flight when it is closed, and takes nothing more",
    needs: ["closing"],
    async run({ publisher, stream, arrived }) {
      const batch = samples(stream, ["a", "b", "c"], 50);
      const publishing = publisher.publish(batch, never()).catch((): readonly PublishResult[] => []);
      await publisher.close?.();
      const results = await within(5000, "the end of publishing after close", publishing);
      assert.ok(results.every(({ status }) => ["published", "unavailable", "held"].includes(status)));
      const confirmed = batch.filter((_, i) => results[i]?.status === "published");
      const got = new Set(idsOf(await arrived(confirmed.length)));
      assert.ok(confirmed.every(({ id }) => got.has(id)));
      const after = await publisher.publish(samples(stream, ["d"], 1), never()).catch((): PublishResult[] => []);
      assert.ok(after.every(({ status }) => status === "unavailable"));
      await publisher.close?.();
    },
  },
];
