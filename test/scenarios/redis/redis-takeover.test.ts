import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { createRedisPublisher } from "../../../src/brokers/redis/index.ts";
import type { Message } from "../../../src/core/message.ts";
import { samples } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import type { NodeProcess } from "../../harness/spawn-node.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { redisClient, redisProbe } from "../../support/redis-clients.ts";
import { redisReader, type ReaderConfig } from "../support/redis-reader-process.ts";

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true, appendfsync: "everysec" }));
afterAll(() => slot.stop());

const KEYS = Array.from({ length: 20 }, (_, i) => `k${i}`);
const TAKE_OVER_MS = 400;

describe.skipIf(slot.skipped)("processes that read one Redis stream", () => {
  async function readers(config: Pick<ReaderConfig, "stream" | "ordered">, count: number): Promise<NodeProcess[]> {
    const { url } = slot.server;
    const one = (): Promise<NodeProcess> => redisReader({ url, takeOverAfterMs: TAKE_OVER_MS, ...config });
    const started = await Promise.all(Array.from({ length: count }, one));
    onTestFinished(async () => void (await Promise.all(started.map((child) => child.kill()))));
    return started;
  }

  async function publish(stream: string, each: number): Promise<Message[]> {
    const publisher = createRedisPublisher({ client: redisClient("ioredis", slot.server.url) });
    const all = samples(stream, KEYS, each);
    for (let from = 0; from < all.length; from += 200) {
      const results = await publisher.publish(all.slice(from, from + 200), new AbortController().signal);
      expect(results.every(({ status }) => status === "published")).toBe(true);
    }
    await publisher.close?.();
    return all;
  }

  async function handled(stream: string, count: number): Promise<string[]> {
    await using probe = await redisProbe(slot.server.url);
    const log = async (): Promise<string[]> =>
      ((await probe.command("LRANGE", `${stream}:log`, "0", "-1")) as Buffer[]).map(String);
    await until(async () => new Set(await log()).size >= count, {
      what: `${count} handled messages of ${stream}`,
      timeoutMs: 40_000,
      intervalMs: 50,
    });
    const all = await log();
    return all;
  }

  function expectFirstsInOrder(log: readonly string[], each: number): void {
    for (const key of KEYS) {
      const firsts = [...new Set(log.filter((entry) => entry.startsWith(`${key}:`)))];
      expect(firsts).toEqual(Array.from({ length: each }, (_, n) => `${key}:${n}`));
    }
  }

  async function nothingPending(stream: string): Promise<void> {
    await using probe = await redisProbe(slot.server.url);
    await until(async () => Number(((await probe.command("XPENDING", stream, "readers")) as number[])[0]) === 0, {
      what: "acknowledgements",
    });
  }

  it("ordered: a frozen and a killed reader lose nothing and let nothing of a key overtake", async () => {
    const stream = "ordered-kills";
    const children = await readers({ stream, ordered: true }, 3);
    const each = 150;
    await publish(stream, each);
    await using probe = await redisProbe(slot.server.url);
    /** The one that reads now: the others stand by. */
    const reader = async (): Promise<NodeProcess | undefined> => {
      const infos = (await probe.command("XINFO", "CONSUMERS", stream, "readers")) as (Buffer | number)[][];
      const [busy] = infos.filter((info) => Number(info[5] ?? 0) < 100).map((info) => String(info[1]));
      return children.find(({ pid, running }) => running && busy?.includes(`:${pid}:`) === true);
    };
    const handledSoFar = async (): Promise<number> => Number(await probe.command("LLEN", `${stream}:log`));
    await until(async () => (await handledSoFar()) > 300, { what: "the first messages", timeoutMs: 60_000 });
    const frozen = await until(reader, { what: "a reader to freeze" });
    frozen.pause();
    const before = await handledSoFar();
    await until(async () => (await handledSoFar()) > before + 300, { what: "the next reader", timeoutMs: 60_000 });
    frozen.resume();
    await sleep(200);
    const killed = await until(async () => (await reader()) ?? false, { what: "a reader to kill" });
    await killed.kill();
    const log = await handled(stream, KEYS.length * each);
    expectFirstsInOrder(log, each);
    await nothingPending(stream);
  });

  it("ordered: a reader that is stopped hands over at once", async () => {
    const stream = "ordered-stop";
    const [first] = await readers({ stream, ordered: true }, 1);
    const each = 60;
    await publish(stream, each);
    await handled(stream, 100);
    await readers({ stream, ordered: true }, 1);
    first?.send("stop");
    expect((await first?.waitForExit())?.code).toBe(0);
    const log = await handled(stream, KEYS.length * each);
    expectFirstsInOrder(log, each);
    // Nothing was handled twice.
    expect(log).toHaveLength(KEYS.length * each);
    await nothingPending(stream);
  });

  it("shared: what a killed reader had in hand is taken over, and all readers work", async () => {
    const stream = "shared-kill";
    const children = await readers({ stream, ordered: false }, 3);
    const each = 150;
    await publish(stream, each);
    await handled(stream, 300);
    await using probe = await redisProbe(slot.server.url);
    const infos = (await probe.command("XINFO", "CONSUMERS", stream, "readers")) as unknown[][];
    expect(infos).toHaveLength(3);
    await children[0]?.kill();
    await handled(stream, KEYS.length * each);
    await nothingPending(stream);
  });

  it.each([true, false])(
    "ordered: %s: a message that kills its readers is put aside, and no other",
    async (ordered) => {
      const stream = `poison-${ordered}`;
      await using probe = await redisProbe(slot.server.url);
      const add = (body: unknown): Promise<unknown> => probe.command("XADD", stream, "*", "body", JSON.stringify(body));
      for (let n = 0; n < 30; n++) await add(n);
      await add("poison");
      for (let n = 30; n < 60; n++) await add(n);
      const config = { url: slot.server.url, stream, ordered, takeOverAfterMs: 150 };
      const dead = async (): Promise<number> => Number(await probe.command("XLEN", `${stream}.dead`));
      let deaths = 0;
      for (; deaths < 12 && (await dead()) === 0; deaths++) {
        const child = await redisReader(config, "poisoned");
        onTestFinished(async () => void (await child.kill()));
        await until(async () => !child.running || (await dead()) > 0, { what: "a death", timeoutMs: 60_000 });
        if (child.running) break;
      }
      expect(deaths).toBe(5);
      const log = await handled(stream, 60);
      expect(new Set(log)).toEqual(new Set(Array.from({ length: 60 }, (_, n) => String(n))));
      expect(await dead()).toBe(1);
      const [[, letter]] = (await probe.command("XRANGE", `${stream}.dead`, "-", "+")) as [[Buffer, Buffer[]]];
      expect(letter.map(String)).toEqual(expect.arrayContaining(['"poison"', expect.stringMatching(/taken 5 times/)]));
      await nothingPending(stream);
    },
  );
});
