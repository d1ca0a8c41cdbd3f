import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { HandleResult } from "../../core/contracts.ts";
import type { SubscriberCase } from "./broker-context.ts";
import { payloadsOf, sample, samples } from "./sample-message.ts";
import { recorder } from "./subscriber-cases.ts";

const role = "subscriber";
const DONE: HandleResult = { status: "done" };
const BODY = 500_000;
const LIMIT = 2_000_000;
const padded = (n: unknown): string => JSON.stringify([n, "x".repeat(BODY)]);

/** How much is taken from the broker, counted in bytes. */
export const byteLimitCases: readonly SubscriberCase[] = [
  {
    role,
    name: "holds no more bytes than it may, and takes everything in the order of keys",
    needs: ["byteLimit", "keyOrder"],
    async run({ subscriber, stream, send }) {
      const keys = Array.from({ length: 20 }, (_, i) => `k${i}`);
      const all = samples(stream, keys, 3).map((message) => ({
        ...message,
        body: padded(JSON.parse(String(message.body))),
      }));
      let [inHand, most] = [0, 0];
      const { got, handle, until } = recorder(async ({ body }) => {
        inHand += body.length;
        most = Math.max(most, inHand);
        await sleep(20);
        inHand -= body.length;
        return DONE;
      });
      // One by one: together they may be more than a broker takes at once.
      for (const message of all) await send([message]);
      await subscriber({ concurrency: 60, prefetch: 60, prefetchBytes: LIMIT }).start("consumer", handle);
      await until(all.length);
      assert.ok(most <= LIMIT + BODY + 100, `${most} bytes were in hand`);
      assert.ok(most > BODY + 100, "one at a time is not what the limit says");
      for (const key of keys) {
        const numbers = payloadsOf(got, key).map((payload) => (payload as [number])[0]);
        assert.deepEqual(numbers, [0, 1, 2], key);
      }
    },
  },
  {
    role,
    name: "takes a message that is larger than all it may hold",
    needs: ["byteLimit"],
    async run({ subscriber, stream, send }) {
      const { got, handle, until } = recorder();
      await subscriber({ prefetchBytes: 1000 }).start("consumer", handle);
      const all = [1, 2, 3, 4].map((n) => sample(stream, n, n % 2 === 0 ? { body: padded(n) } : {}));
      await send(all);
      await until(4);
      assert.deepEqual(new Set(got.map(({ id }) => id)), new Set(all.map(({ id }) => id)));
    },
  },
];
