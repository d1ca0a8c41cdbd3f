import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Handle, HandleResult } from "../../core/contracts.ts";
import type { IncomingMessage } from "../../core/message.ts";
import { eventually, within } from "../eventually.ts";
import type { SubscriberCase } from "./broker-context.ts";
import { assertSameMessage, hostileSamples, idsOf, payloadsOf, richSample, sample, samples } from "./sample-message.ts";

const role = "subscriber";
const DONE: HandleResult = { status: "done" };
/** Long enough for a repeat that should not come. */
const A_WHILE_MS = 200;

export interface Recorder {
  readonly got: IncomingMessage[];
  readonly handle: Handle;
  /** Resolves when there have been so many deliveries. */
  readonly until: (count: number) => Promise<void>;
}

/** Remembers every delivery; `judge` says what becomes of it, by how often this message came before. */
export function recorder(
  judge: (message: IncomingMessage, times: number) => HandleResult | Promise<HandleResult> = () => DONE,
): Recorder {
  const got: IncomingMessage[] = [];
  const handle: Handle = async (message) => {
    const times = got.filter(({ id }) => id === message.id).length;
    got.push(message);
    return judge(message, times);
  };
  const until = (count: number): Promise<void> =>
    eventually(() => assert.ok(got.length >= count, `${got.length} of ${count} deliveries came`), {
      timeoutMs: 30_000,
    });
  return { got, handle, until };
}

const failed = (): HandleResult => ({ status: "failed", error: new Error("failed") });

export const subscriberCases: readonly SubscriberCase[] = [
  {
    role,
    name: "delivers every field, header and body unchanged, once",
    async run({ subscriber, stream, send }) {
      const { got, handle, until } = recorder();
      await subscriber().start("consumer", handle);
      const bytes = sample(stream, null, {
        body: Uint8Array.from({ length: 256 }, (_, i) => i),
        headers: { contentType: "application/octet-stream" },
      });
      const all = [richSample(stream), bytes, sample(stream, null, { key: null, headers: {} })];
      await send(all);
      await until(3);
      await sleep(A_WHILE_MS);
      assert.equal(got.length, 3);
      for (const message of all)
        assertSameMessage(
          got.find(({ id }) => id === message.id),
          message,
        );
    },
  },
  {
    role,
    name: "changes nothing of names and values that mean something elsewhere",
    async run({ subscriber, stream, send }) {
      const { got, handle, until } = recorder();
      await subscriber().start("consumer", handle);
      const all = hostileSamples(stream);
      await send(all);
      await until(all.length);
      for (const message of all)
        assertSameMessage(
          got.find(({ id }) => id === message.id),
          message,
        );
    },
  },
  {
    role,
    name: "hands the handler a signal that is not aborted",
    async run({ subscriber, stream, send }) {
      const seen = Promise.withResolvers<AbortSignal>();
      await subscriber().start("consumer", async (_, signal) => {
        seen.resolve(signal);
        return DONE;
      });
      await send([sample(stream, 1)]);
      const signal = await within(15_000, "the first delivery", seen.promise);
      assert.equal(signal.aborted, false);
    },
  },
  {
    role,
    name: "delivers the messages of a key in order, one at a time",
    needs: ["keyOrder"],
    async run({ subscriber, stream, send }) {
      const inHand = new Set<string>();
      const keys = ["a", "b", "c", "d"];
      const { got, handle, until } = recorder(async ({ key }) => {
        assert.ok(!inHand.has(String(key)), "two messages of one key at once");
        inHand.add(String(key));
        await sleep(Math.random() * 3);
        inHand.delete(String(key));
        return DONE;
      });
      await subscriber().start("consumer", handle);
      const all = samples(stream, keys, 15);
      await send(all);
      await until(all.length);
      for (const key of keys) assert.deepEqual(payloadsOf(got, key), payloadsOf(all, key), key);
    },
  },
  {
    role,
    name: "does not hold up one key for a slow message of another",
    needs: ["parallel"],
    async run({ subscriber, stream, send }) {
      const slow = Promise.withResolvers<void>();
      const { got, handle, until } = recorder(async ({ key }) => {
        if (key === "slow") await slow.promise;
        return DONE;
      });
      await subscriber().start("consumer", handle);
      await send([
        sample(stream, 1, { key: "slow" }),
        sample(stream, 2, { key: "fast" }),
        sample(stream, 3, { key: "fast" }),
      ]);
      await eventually(() => assert.equal(payloadsOf(got, "fast").length, 2));
      slow.resolve();
      await until(3);
    },
  },
  {
    role,
    name: "goes on after a handler that threw, failed or rejected",
    async run({ subscriber, stream, send }) {
      const { got, handle } = recorder(({ key }, times) => {
        if (times > 0 || key === "fine") return DONE;
        if (key === "throws") throw new Error("thrown");
        return { status: key === "fails" ? "failed" : "rejected", error: new Error(String(key)) };
      });
      await subscriber().start("consumer", handle);
      for (const key of ["throws", "fails", "rejects"]) await send([sample(stream, 1, { key })]);
      await send([sample(stream, 2, { key: "fine" })]);
      await eventually(() => assert.equal(payloadsOf(got, "fine").length, 1), { timeoutMs: 30_000 });
    },
  },
  {
    role,
    name: "delivers again what failed, threw or found its target out, until it is done",
    needs: ["redelivery"],
    async run({ subscriber, stream, send }) {
      const { got, handle, until } = recorder(({ key }, times) => {
        if (times === 2) return DONE;
        if (key === "throws") throw new Error("thrown");
        return { status: key === "fails" ? "failed" : "unavailable", error: new Error(String(key)) };
      });
      await subscriber().start("consumer", handle);
      const all = ["throws", "fails", "is out"].map((key) => sample(stream, 1, { key }));
      await send(all);
      await until(9);
      await sleep(A_WHILE_MS);
      for (const { id } of all) assert.equal(got.filter((one) => one.id === id).length, 3);
    },
  },
  {
    role,
    name: "does not deliver again what is rejected",
    async run({ subscriber, stream, send }) {
      const { got, handle, until } = recorder(({ key }) =>
        key === "poison" ? { status: "rejected", error: new Error("no") } : DONE,
      );
      await subscriber().start("consumer", handle);
      await send([sample(stream, 1, { key: "poison" }), sample(stream, 2, { key: "fine" })]);
      await until(2);
      await sleep(A_WHILE_MS);
      assert.equal(got.length, 2);
    },
  },
  {
    role,
    name: "keeps the order of a key though a message has to come again",
    needs: ["orderedRetry", "keyOrder"],
    async run({ subscriber, stream, send }) {
      const done: IncomingMessage[] = [];
      const { handle } = recorder((message, times) => {
        if (payloadsOf([message], "k")[0] === 2 && times < 2) return failed();
        done.push(message);
        return DONE;
      });
      await subscriber().start("consumer", handle);
      await send(samples(stream, ["k"], 6));
      await eventually(() => assert.equal(done.length, 6), { timeoutMs: 30_000 });
      assert.deepEqual(payloadsOf(done, "k"), [0, 1, 2, 3, 4, 5]);
    },
  },
  {
    role,
    name: "waits for the message in hand when it is stopped, and takes no more",
    async run({ subscriber, stream, send }) {
      const [entered, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      let finished = 0;
      const { got, handle } = recorder(async () => {
        entered.resolve();
        await release.promise;
        finished++;
        return DONE;
      });
      const one = subscriber();
      await one.start("consumer", handle);
      await send([sample(stream, 1)]);
      await within(15_000, "the first delivery", entered.promise);
      let stopped = false;
      const stopping = one.stop().then(() => (stopped = true));
      await sleep(50);
      assert.equal(stopped, false, "it did not wait");
      release.resolve();
      await within(5000, "the end of stop", stopping);
      const before = got.length;
      assert.equal(finished, before);
      await send([sample(stream, 2)]).catch(() => undefined);
      await sleep(A_WHILE_MS);
      assert.equal(got.length, before);
    },
  },
  {
    role,
    name: "can be stopped twice, and started again",
    async run({ subscriber, stream, send }) {
      const one = subscriber();
      const first = recorder();
      await one.start("consumer", first.handle);
      await send([sample(stream, 1)]);
      await first.until(1);
      await one.stop();
      await one.stop();
      const second = recorder();
      await one.start("consumer", second.handle);
      await send([sample(stream, 2)]);
      await second.until(1);
      assert.deepEqual([first.got.length, second.got.length], [1, 1]);
    },
  },
  {
    role,
    name: "leaves to the next subscriber what was not done, and nothing else",
    needs: ["durable", "redelivery"],
    async run({ subscriber, stream, send }) {
      const all = samples(stream, ["k"], 4);
      await send(all);
      const one = subscriber();
      const out: HandleResult = { status: "unavailable", error: new Error("the database is out") };
      const first = recorder((message) => (payloadsOf([message], "k")[0] === 0 ? DONE : out));
      await one.start("consumer", first.handle);
      await first.until(2);
      await one.stop();
      const second = recorder();
      await subscriber().start("consumer", second.handle);
      await second.until(3);
      await sleep(A_WHILE_MS);
      assert.deepEqual(new Set(idsOf(second.got)), new Set(idsOf(all.slice(1))));
    },
  },
  {
    role,
    name: "keeps the order of a key over several stops with messages in hand",
    needs: ["durable", "redelivery", "keyOrder"],
    async run({ subscriber, stream, send }) {
      const keys = ["a", "b"];
      await send(samples(stream, keys, 50));
      const out: HandleResult = { status: "unavailable", error: new Error("the database is out") };
      const done = recorder();
      const goesOn = new AbortController().signal;
      const number = (message: IncomingMessage): number => payloadsOf([message], String(message.key))[0] as number;
      for (let time = 0; time < 4; time++) {
        const tried = recorder((message) => (number(message) < 10 ? done.handle(message, goesOn) : out));
        const one = subscriber();
        await one.start("consumer", tried.handle);
        await eventually(() => assert.ok(tried.got.some((message) => number(message) >= 10)), { timeoutMs: 30_000 });
        await sleep(A_WHILE_MS);
        await one.stop();
      }
      await subscriber().start("consumer", done.handle);
      await done.until(100);
      for (const key of keys) {
        const firsts = done.got.filter((message, i) => done.got.findIndex(({ id }) => id === message.id) === i);
        assert.deepEqual(
          payloadsOf(firsts, key),
          Array.from({ length: 50 }, (_, i) => i),
          key,
        );
      }
    },
  },
  {
    role,
    name: "shares the messages of a queue among subscribers",
    needs: ["competing"],
    async run({ subscriber, stream, send }) {
      const both = [recorder(), recorder()];
      for (const { handle } of both) await subscriber().start("consumer", handle);
      const all = samples(
        stream,
        Array.from({ length: 20 }, (_, i) => `k${i}`),
        2,
      );
      await send(all);
      await eventually(
        () =>
          assert.equal(
            both.reduce((sum, { got }) => sum + got.length, 0),
            all.length,
          ),
        { timeoutMs: 30_000 },
      );
      await sleep(A_WHILE_MS);
      assert.equal(new Set(both.flatMap(({ got }) => idsOf(got))).size, all.length);
    },
  },
  {
    role,
    name: "hands on messages of producers that know nothing of txbox",
    needs: ["foreign"],
    async run({ subscriber, stream, send, sendForeign }) {
      const { got, handle, until } = recorder();
      await subscriber().start("consumer", handle);
      const bodies = [Buffer.from('{"plain":"ü"}'), Buffer.from([0xff, 0x00, 0xfe]), Buffer.alloc(0)];
      for (const body of bodies) await sendForeign?.(body);
      await send([sample(stream, "after")]);
      await until(4);
      const hex = got.map(({ body }) => Buffer.from(body as string).toString("hex"));
      for (const body of bodies) assert.ok(hex.includes(body.toString("hex")));
    },
  },
  {
    role,
    name: "goes on after its connection was broken",
    needs: ["reconnect"],
    async run({ subscriber, stream, send, disconnect }) {
      const { got, handle } = recorder();
      await subscriber().start("consumer", handle);
      const all = samples(stream, ["k"], 3);
      for (const message of all) {
        await send([message]);
        await eventually(() => assert.ok(idsOf(got).includes(message.id)), { timeoutMs: 30_000 });
        await disconnect?.();
      }
    },
  },
];
