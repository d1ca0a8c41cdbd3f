import assert from "node:assert/strict";
import type { Publisher, PublishResult } from "../../core/contracts.ts";
import type { Message } from "../../core/message.ts";
import { eventually } from "../eventually.ts";
import type { PublisherCase } from "./broker-context.ts";
import { assertAllPublished } from "./publisher-cases.ts";
import { idsOf, payloadsOf, sample, samples } from "./sample-message.ts";

const role = "publisher";
const never = (): AbortSignal => new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

/** Publishers that know no routes may say so either way: the relay does the same. */
const heldBack = (status: string): string => (status === "unavailable" ? "held" : status);

/** What the relay does in an outage: what is not confirmed goes again, in order. */
export async function publishAll(publisher: Publisher, batch: readonly Message[]): Promise<void> {
  let left = batch;
  await eventually(
    async () => {
      const results = await publisher.publish(left, never());
      left = left.filter((_, i) => results[i]?.status !== "published");
      assert.equal(left.length, 0, `${left.length} messages did not go out: ${statuses(results).join(", ")}`);
    },
    { timeoutMs: 30_000, intervalMs: 50 },
  );
}

/**
 * No message is to blame for an outage: it is thrown, or `unavailable` for each; what follows one of its key may be
 * `held`.
 */
async function assertUnavailable(publisher: Publisher, batch: readonly Message[]): Promise<void> {
  const results = await publisher.publish(batch, never()).catch(() => undefined);
  if (results === undefined) return;
  assert.equal(results.length, batch.length);
  assert.equal(results[0]?.status, "unavailable");
  assert.ok(results.every(notTaken), statuses(results).join(", "));
}

const notTaken = ({ status }: PublishResult): boolean => status === "unavailable" || status === "held";

/** Partial failures, outages and lost connections. */
export const publisherFailureCases: readonly PublisherCase[] = [
  {
    role,
    name: "reports the one message that failed, and delivers the others",
    needs: ["refusal"],
    async run({ publisher, stream, arrived, refuse }) {
      const batch = ["a", "b", "c"].map((key) => sample(stream, 1, { key }));
      await refuse?.(batch[1]?.id ?? "", "failed");
      const results = await publisher.publish(batch, never());
      assert.deepEqual(statuses(results), ["published", "failed", "published"]);
      assert.ok(results[1]?.status === "failed" && results[1].error !== undefined);
      assert.deepEqual(idsOf(await arrived(2)).sort(), idsOf([batch[0] ?? {}, batch[2] ?? {}]).sort());
      assertAllPublished(await publisher.publish(batch.slice(1, 2), never()), 1);
    },
  },
  {
    role,
    name: "says of a message that can never work that it is rejected",
    needs: ["refusal"],
    async run({ publisher, stream, refuse }) {
      const batch = ["a", "b"].map((key) => sample(stream, 1, { key }));
      await refuse?.(batch[0]?.id ?? "", "rejected");
      assert.deepEqual(statuses(await publisher.publish(batch, never())), ["rejected", "published"]);
    },
  },
  {
    role,
    name: "lets nothing of a key overtake its failed message, if it says that it keeps the order",
    needs: ["refusal"],
    async run({ publisher, stream, arrived, refuse }) {
      if (!publisher.keepsKeyOrder) return;
      const batch = [...samples(stream, ["k"], 5), sample(stream, 0, { key: "other" })];
      await refuse?.(batch[2]?.id ?? "", "failed");
      const results = await publisher.publish(batch, never());
      const expected = ["published", "published", "failed", "held", "held", "published"];
      assert.deepEqual(statuses(results).map(heldBack), expected);
      await publishAll(publisher, batch.slice(2, 5));
      assert.deepEqual(payloadsOf(await arrived(6), "k"), [0, 1, 2, 3, 4]);
    },
  },
  {
    role,
    name: "rejects a message that is too large, and only that one",
    needs: ["oversized"],
    async run({ publisher, stream, arrived, oversized }) {
      const batch = [sample(stream, 1, { key: "a" }), sample(stream, 2, { key: "b" }), sample(stream, 3, { key: "c" })];
      const large = { ...(batch[1] ?? sample(stream, 2)), body: oversized?.() ?? "" };
      const results = await publisher.publish(batch.with(1, large), never());
      assert.deepEqual(statuses(results), ["published", "rejected", "published"]);
      assert.equal((await arrived(2)).length, 2);
      assertAllPublished(await publisher.publish([sample(stream, 4)], never()), 1);
    },
  },
  {
    role,
    name: "rejects a message that has nowhere to go, and only that one",
    needs: ["unroutable"],
    async run({ publisher, stream, arrived, unroutable }) {
      const nowhere = sample(unroutable?.() ?? "", 1);
      const results = await publisher.publish([sample(stream, 1), nowhere, sample(stream, 2)], never());
      assert.deepEqual(statuses(results), ["published", "rejected", "published"]);
      assert.equal((await arrived(2)).length, 2);
    },
  },
  {
    role,
    name: "blames no message for an outage, and goes on by itself afterwards",
    needs: ["outage"],
    async run({ publisher, stream, arrived, goDown, comeBack }) {
      assertAllPublished(await publisher.publish([sample(stream, "before")], never()), 1);
      await goDown?.();
      const batch = samples(stream, ["a", "b"], 3);
      for (let i = 0; i < 3; i++) await assertUnavailable(publisher, batch);
      await comeBack?.();
      await publishAll(publisher, batch);
      const got = await arrived(batch.length + 1);
      assert.ok(batch.every(({ id }) => idsOf(got).includes(id)));
    },
  },
  {
    role,
    name: "loses and reorders nothing when the target goes away in the middle of a batch",
    needs: ["outage"],
    async run({ publisher, stream, arrived, goDown, comeBack }) {
      const keys = ["a", "b", "c"];
      const batch = samples(stream, keys, 40);
      const publishing = publisher.publish(batch, never()).catch((): PublishResult[] => []);
      await goDown?.();
      const results = await publishing;
      assert.ok(results.every((result) => result.status === "published" || notTaken(result)));
      await comeBack?.();
      const left = batch.filter((_, i) => results[i]?.status !== "published");
      await publishAll(publisher, left);
      const got = await arrived(batch.length);
      for (const key of keys) {
        // A message whose confirm was lost goes out again: only first arrivals have an order.
        assert.deepEqual([...new Set(payloadsOf(got, key))], payloadsOf(batch, key), key);
      }
    },
  },
  {
    role,
    name: "connects again by itself",
    needs: ["reconnect"],
    async run({ publisher, stream, arrived, disconnect }) {
      for (let round = 1; round <= 3; round++) {
        await publishAll(publisher, [sample(stream, round, { key: `k${round}` })]);
        await disconnect?.();
      }
      await publishAll(publisher, [sample(stream, 4)]);
      assert.ok(new Set(idsOf(await arrived(4))).size === 4);
    },
  },
];
