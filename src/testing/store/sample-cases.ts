import assert from "node:assert/strict";
import type { NewSample, Sample } from "../../core/contracts.ts";
import { NO_COUNTS } from "../../core/sample-counts.ts";
import { createInbox } from "../../inbox/inbox.ts";
import { createRelay } from "../../relay/relay.ts";
import { createMemoryPublisher } from "../memory-publisher.ts";
import { enqueue, message, numbered } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "samples";

function sample(more: Partial<NewSample> & Pick<NewSample, "of">): NewSample {
  return { ...NO_COUNTS, owner: "one", lastError: undefined, ...more };
}

/** Clocks of the database and of this process may differ. */
const anHourAgo = (): Date => new Date(Date.now() - 3_600_000);

function total(samples: readonly Sample[], what: keyof typeof NO_COUNTS): number {
  return samples.reduce((sum, one) => sum + one[what], 0);
}

async function record(context: StoreContext, ...samples: NewSample[]): Promise<void> {
  assert.ok(context.store.history !== undefined, "the store keeps no history");
  for (const one of samples) await context.store.history.record(one);
}

/** The little history: what relays and consumers did lately, and what waits without one. */
export const sampleCases: readonly StoreCase[] = [
  {
    role,
    name: "adds up what the processes of a relay did, and keeps relays and consumers apart",
    async run(context) {
      await record(
        context,
        sample({ of: { relay: "a" }, published: 5, lastError: { error: "$first", agoMs: 5000 } }),
        sample({ of: { relay: "a" }, owner: "two", published: 7, dead: 1, lastError: { error: "$second", agoMs: 0 } }),
        sample({ of: { relay: "b" }, retried: 2, unavailable: 3 }),
        sample({ of: { consumer: "a" }, processed: 4, duplicate: 1, failed: 2, rejected: 1 }),
      );
      const { admin } = context.store;
      const since = anHourAgo();
      const own = await admin.samples({ relay: "a", since });
      assert.deepEqual([total(own, "published"), total(own, "dead")], [12, 1]);
      assert.ok(
        own.every(({ relay, consumer, at }) => relay === "a" && consumer === null && at.getTime() % 10_000 === 0),
      );
      assert.equal(own.at(-1)?.lastError, "$second");
      const consumer = await admin.samples({ consumer: "a", since });
      assert.deepEqual(
        (["processed", "duplicate", "failed", "rejected"] as const).map((what) => total(consumer, what)),
        [4, 1, 2, 1],
      );
      // What ran on these tables before may still write its last sample.
      const all = (await admin.samples({ since })).filter(({ relay, consumer }) =>
        /^[ab]$/.test(relay ?? consumer ?? ""),
      );
      assert.deepEqual([total(all, "published"), total(all, "unavailable"), total(all, "processed")], [12, 3, 4]);
      assert.deepEqual(await admin.samples({ since, until: new Date(since.getTime() + 1000) }), []);
      const { activity } = await admin.figures();
      const relay = activity.find((one) => one.relay === "a");
      assert.equal(relay?.perSecond, 0.2);
      assert.equal(relay?.lastError, "$second");
      assert.ok(Math.abs((relay?.lastErrorAt?.getTime() ?? 0) - Date.now()) < 120_000);
      assert.equal(activity.find((one) => one.consumer === "a")?.lastError, null);
    },
  },
  {
    role,
    name: "is written by a relay and by an inbox when they end",
    async run(context) {
      await enqueue(context, ...numbered(1, 3), message(4, { type: "bad", key: "other" }));
      const publisher = createMemoryPublisher();
      publisher.reject(({ type }) => (type === "bad" ? new Error("never") : undefined));
      await createRelay({ store: context.store, name: "r", publisher }).drainOnce();
      const inbox = createInbox({ store: context.store, consumer: "c" });
      inbox.on("t", () => Promise.resolve());
      const incoming = { id: "x", type: "t", body: "1", headers: {} };
      assert.deepEqual([await inbox.handle(incoming), await inbox.handle(incoming)], ["processed", "duplicate"]);
      await inbox.stop();
      const since = anHourAgo();
      const relay = await context.store.admin.samples({ relay: "r", since });
      assert.deepEqual([total(relay, "published"), total(relay, "dead")], [3, 1]);
      assert.match(relay.at(-1)?.lastError ?? "", /never/);
      const consumer = await context.store.admin.samples({ consumer: "c", since });
      assert.deepEqual([total(consumer, "processed"), total(consumer, "duplicate")], [1, 1]);
    },
  },
  {
    role,
    name: "refuses what it does not understand",
    async run({ store }) {
      const refused = (query: object) =>
        assert.rejects(async () => store.admin.samples(query as never), { code: "invalid_option" });
      await refused({});
      await refused({ since: "yesterday" });
      await refused({ since: new Date(), relay: "a", consumer: "b" });
      await refused({ since: new Date(), relais: "a" });
    },
  },
];
