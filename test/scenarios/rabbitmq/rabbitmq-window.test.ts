import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import type { Handle } from "../../../src/core/contracts.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("the count of a RabbitMQ consumer", () => {
  it("follows the sizes of messages, and no change of it doubles or reorders anything for two processes", async () => {
    const queue = `q-${randomBytes(5).toString("hex")}`;
    const done: { who: string; key: string; n: number }[] = [];
    let [inHand, most] = [0, 0];
    const published = Promise.withResolvers<void>();
    const handler =
      (who: string): Handle =>
      async ({ body, key, headers }) => {
        inHand += body.length;
        most = Math.max(most, inHand);
        await published.promise;
        await sleep(2);
        done.push({ who, key: String(key), n: Number(headers["n"]) });
        inHand -= body.length;
        return { status: "done" };
      };
    for (const who of ["a", "b"]) {
      const link = await testConnection(slot.server.url);
      const { connection } = link;
      const limits = { prefetch: 100, prefetchBytes: 1_000_000, concurrency: 20 };
      const one = createRabbitmqSubscriber({ connection, queue, declare: true, ...limits });
      await one.start("c", handler(who));
      onTestFinished(async () => {
        await one.stop();
        await link[Symbol.asyncDispose]();
      });
    }
    const link = await testConnection(slot.server.url);
    onTestFinished(() => link[Symbol.asyncDispose]());
    const channel = await link.connection.createConfirmChannel();
    // Small ones, then large ones, then small ones again.
    for (let n = 0; n < 700; n++) {
      const bytes = n >= 300 && n < 400 ? 300_000 : 50;
      const headers = { "txbox-id": `m${n}`, "txbox-key": `k${n % 30}`, "txbox-stream": "s", n: String(n) };
      channel.sendToQueue(queue, Buffer.alloc(bytes, "x"), { headers });
      if (n % 50 === 0) await channel.waitForConfirms();
    }
    await channel.waitForConfirms();
    published.resolve();
    await until(() => done.length >= 700, { what: "all messages", timeoutMs: 60_000 });
    await sleep(300);
    expect(done).toHaveLength(700);
    for (let key = 0; key < 30; key++) {
      const numbers = done.filter((one) => one.key === `k${key}`).map(({ n }) => n);
      expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
    }
    expect(most).toBeLessThanOrEqual(2 * 1_300_000);
    // The role of the active one has moved with a change.
    expect(new Set(done.map(({ who }) => who))).toEqual(new Set(["a", "b"]));
    const { messageCount } = await channel.checkQueue(queue);
    expect(messageCount).toBe(0);
  });
});
