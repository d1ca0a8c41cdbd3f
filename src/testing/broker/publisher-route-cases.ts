import assert from "node:assert/strict";
import type { Publisher, PublishResult } from "../../core/contracts.ts";
import type { Message } from "../../core/message.ts";
import type { BrokenRoute, PublisherCase } from "./broker-context.ts";
import { assertAllPublished } from "./publisher-cases.ts";
import { publishAll } from "./publisher-failure-cases.ts";
import { payloadsOf, samples } from "./sample-message.ts";

const role = "publisher";
const never = (): AbortSignal => new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

/** What the relay gives it: whole batches, or one message of a key at a time. */
async function publish(publisher: Publisher, batch: readonly Message[]): Promise<PublishResult[]> {
  if (publisher.keepsKeyOrder) return [...(await publisher.publish(batch, never()))];
  const results: PublishResult[] = [];
  const stopped = new Set<string>();
  for (const message of batch) {
    const key = `${message.stream} ${message.key}`;
    const [result = { status: "held" } as const] = stopped.has(key) ? [] : await publisher.publish([message], never());
    if (result.status !== "published") stopped.add(key);
    results.push(result);
  }
  return results;
}

/** Two keys of the route that is out, between two keys of another. */
function mixed(stream: string, route: BrokenRoute, from: number): Message[] {
  const other = samples(stream, ["a", "b"], 3);
  const its = samples(route.stream, ["c", "d"], 3).map((message, i) => ({
    ...message,
    body: JSON.stringify(from + Math.floor(i / 2)),
  }));
  return other.flatMap((message, i) => [message, its[i] ?? message]);
}

/** Routes that are out while others are there. */
export const publisherRouteCases: readonly PublisherCase[] = [
  {
    role,
    name: "a route that is out holds up its own messages only, is named, and blames none of them",
    needs: ["routes"],
    async run({ publisher, stream, arrived, route }) {
      assert.ok(route !== undefined);
      const before = mixed(stream, route, 0);
      assertAllPublished(await publish(publisher, before), before.length);
      await route.goOut();
      const batch = mixed(stream, route, 3);
      const its = batch.filter((message) => message.stream === route.stream);
      const names = new Set<string | undefined>();
      for (let i = 0; i < 3; i++) {
        const sent: Message[] = i === 0 ? batch : its;
        const results = await publish(publisher, sent);
        const out: PublishResult[] = results.filter((_, at) => sent[at]?.stream === route.stream);
        assert.deepEqual(statuses(out), ["unavailable", "unavailable", "held", "held", "held", "held"]);
        for (const one of out) if (one.status === "unavailable") names.add(one.route);
        if (i === 0) assert.equal(results.filter(({ status }) => status === "published").length, 6);
      }
      assert.equal(names.size, 1);
      assert.ok(
        [...names].every((name) => typeof name === "string" && name !== ""),
        "the route has a name",
      );
      assert.equal((await arrived(12)).length, 12);
      await route.comeBack();
      await publishAll(publisher, its);
      const got = await route.arrived(12);
      for (const key of ["c", "d"]) assert.deepEqual(payloadsOf(got, key), [0, 1, 2, 3, 4, 5], key);
    },
  },
  {
    role,
    name: "loses and reorders nothing when a route goes out in the middle of a batch, and the rest goes through",
    needs: ["routes"],
    async run({ publisher, stream, arrived, route }) {
      assert.ok(route !== undefined);
      const keys = ["a", "b", "c"];
      const [its, other] = [samples(route.stream, keys, 40), samples(stream, keys, 40)];
      const batch = its.flatMap((message, i) => [message, other[i] ?? message]);
      const publishing = publish(publisher, batch);
      await route.goOut();
      const results = await publishing;
      assert.ok(
        results.every((result) => result.status !== "unavailable" || result.route !== undefined),
        "only the route is out",
      );
      assert.deepEqual([...new Set(statuses(results.filter((_, i) => i % 2 === 1)))], ["published"]);
      assert.ok(
        results.every(({ status }) => status !== "failed" && status !== "rejected"),
        "none is blamed",
      );
      await route.comeBack();
      await publishAll(
        publisher,
        batch.filter((_, i) => results[i]?.status !== "published"),
      );
      const got = await route.arrived(its.length);
      for (const key of keys) assert.deepEqual([...new Set(payloadsOf(got, key))], payloadsOf(its, key), key);
      assert.ok((await arrived(other.length)).length >= other.length);
    },
  },
];
