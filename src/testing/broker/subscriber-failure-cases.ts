import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { HandleResult } from "../../core/contracts.ts";
import { eventually } from "../eventually.ts";
import { CONFORMANCE_ATTEMPTS, type AsideMessage, type SubscriberCase } from "./broker-context.ts";
import { idsOf, payloadsOf, sample, samples } from "./sample-message.ts";
import { recorder } from "./subscriber-cases.ts";

const role = "subscriber";
const DONE: HandleResult = { status: "done" };

const hex = (bodies: readonly (string | Uint8Array)[]): string[] =>
  bodies.map((body) => Buffer.from(body as string).toString("hex")).sort();

function assertExplained(letters: readonly AsideMessage[], error: RegExp): void {
  for (const { headers } of letters) {
    assert.match(String(headers["dead-error"]), error);
    assert.equal(headers["dead-by"], "consumer");
    assert.ok(!Number.isNaN(Date.parse(String(headers["dead-at"]))));
  }
}

/** Dead letters, foreign and broken messages, and a broker that is killed. */
export const subscriberFailureCases: readonly SubscriberCase[] = [
  {
    role,
    name: "puts what is rejected aside with its bytes and its error, and goes on",
    needs: ["deadLetters"],
    async run({ subscriber, stream, send, deadLetters }) {
      const { got, handle, until } = recorder(({ key }) =>
        key === "poison" ? { status: "rejected", error: new Error("cannot be read") } : DONE,
      );
      await subscriber().start("consumer", handle);
      const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
      const poison = [
        sample(stream, 1, { key: "poison" }),
        sample(stream, 2, { key: "poison", body: bytes, headers: { contentType: "application/octet-stream" } }),
      ];
      await send([...poison, sample(stream, 3, { key: "fine" })]);
      await until(3);
      const letters = (await deadLetters?.(2)) ?? [];
      assert.deepEqual(hex(letters.map(({ body }) => body)), hex(poison.map(({ body }) => body)));
      assertExplained(letters, /cannot be read/);
      assert.equal(payloadsOf(got, "fine").length, 1);
    },
  },
  {
    role,
    name: "puts aside what fails again and again, and then lets its key go on",
    needs: ["deadLetters", "redelivery"],
    async run({ subscriber, stream, send, deadLetters }) {
      const { got, handle } = recorder((message) =>
        payloadsOf([message], "k")[0] === 1 ? { status: "failed", error: new Error("not today") } : DONE,
      );
      await subscriber().start("consumer", handle);
      const all = samples(stream, ["k"], 3);
      await send(all);
      const letters = (await deadLetters?.(1)) ?? [];
      assertExplained(letters, /not today/);
      assert.equal(Number(letters[0]?.headers["dead-attempts"]), CONFORMANCE_ATTEMPTS);
      await eventually(() => assert.equal(payloadsOf(got, "k").at(-1), 2), { timeoutMs: 30_000 });
      assert.equal(got.filter(({ id }) => id === all[1]?.id).length, CONFORMANCE_ATTEMPTS);
    },
  },
  {
    role,
    name: "counts no attempt while what the handler needs is out",
    needs: ["redelivery"],
    async run({ subscriber, stream, send }) {
      const { got, handle } = recorder((_, times) =>
        times <= CONFORMANCE_ATTEMPTS ? { status: "unavailable", error: new Error("the database is out") } : DONE,
      );
      await subscriber().start("consumer", handle);
      await send([sample(stream, 1)]);
      await eventually(() => assert.equal(got.length, CONFORMANCE_ATTEMPTS + 2), { timeoutMs: 30_000 });
      await sleep(100);
      assert.equal(got.length, CONFORMANCE_ATTEMPTS + 2);
    },
  },
  {
    role,
    name: "puts a message with a broken envelope aside with its bytes, and goes on",
    needs: ["deadLetters", "foreign"],
    async run({ subscriber, stream, send, sendForeign, deadLetters }) {
      const { got, handle, until } = recorder();
      await subscriber().start("consumer", handle);
      const body = Buffer.from([0xff, 0x00, 0x7b]);
      await sendForeign?.(body, { "txbox-id": "x-1", "txbox-type": "broken", "txbox-position": "not a number" });
      const fine = sample(stream, "fine");
      await send([fine]);
      await until(1);
      const letters = (await deadLetters?.(1)) ?? [];
      assert.deepEqual(hex(letters.map((letter) => letter.body)), hex([body]));
      assertExplained(letters, /txbox-position/);
      assert.deepEqual(idsOf(got), [fine.id]);
    },
  },
  {
    role,
    name: "gives the headers of a foreign message to the handler",
    needs: ["foreign"],
    async run({ subscriber, sendForeign }) {
      const { got, handle, until } = recorder();
      await subscriber().start("consumer", handle);
      await sendForeign?.(Buffer.from("{}"), { tenant: "t-1", "content-type": "application/json" });
      await until(1);
      assert.equal(got[0]?.headers["tenant"], "t-1");
      assert.equal(got[0]?.headers.contentType, "application/json");
    },
  },
  {
    role,
    name: "loses nothing and keeps the order of a key when the broker is killed",
    needs: ["restart", "keyOrder"],
    async run({ subscriber, stream, send, restart }) {
      const { got, handle } = recorder(async () => {
        await sleep(2);
        return DONE;
      });
      await subscriber().start("consumer", handle);
      const all = samples(stream, ["a", "b"], 60);
      await send(all);
      await eventually(() => assert.ok(got.length >= 5), { timeoutMs: 30_000 });
      await restart?.();
      const after = samples(stream, ["a", "b"], 5);
      await send(after);
      const wanted = [...all, ...after];
      await eventually(() => assert.equal(new Set(idsOf(got)).size, wanted.length), { timeoutMs: 60_000 });
      for (const key of ["a", "b"]) {
        // A repeat may come late; what counts is when a message came for the first time.
        const firsts = got.filter((one, i) => got.findIndex(({ id }) => id === one.id) === i);
        assert.deepEqual(payloadsOf(firsts, key), payloadsOf(wanted, key), key);
      }
    },
  },
];
