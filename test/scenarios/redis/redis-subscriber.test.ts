import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { createRedisSubscriber, type RedisSubscriberOptions } from "../../../src/brokers/redis/index.ts";
import { RedisLink } from "../../../src/brokers/redis/redis-link.ts";
import { StreamGroup } from "../../../src/brokers/redis/stream-group.ts";
import type { SubscriberEvent } from "../../../src/core/events.ts";
import type { Handle, HandleResult, Subscriber } from "../../../src/core/contracts.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { until, withDeadline } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { measureStalls } from "../../support/measure-stalls.ts";
import { fieldsOf, redisClient, redisProbe, type RedisProbe } from "../../support/redis-clients.ts";
import { startTcpProxy } from "../../support/tcp-proxy.ts";

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(() => slot.stop());

const DONE: HandleResult = { status: "done" };
const BOTH = [{ ordered: true }, { ordered: false }] as const;

describe.skipIf(slot.skipped)("Redis subscriber", () => {
  let probe: RedisProbe;
  let events: SubscriberEvent[];
  let got: IncomingMessage[];

  beforeEach(async () => {
    probe = await redisProbe(slot.server.url);
    onTestFinished(() => probe[Symbol.asyncDispose]());
    await probe.command("FLUSHALL");
    events = [];
    got = [];
  });

  const client = (url = slot.server.url) => redisClient("ioredis", url);
  const recording =
    (judge: (message: IncomingMessage) => HandleResult | Promise<HandleResult> = () => DONE): Handle =>
    async (message) => {
      got.push(message);
      return judge(message);
    };

  async function subscribe(handle: Handle, options: Partial<RedisSubscriberOptions> = {}): Promise<Subscriber> {
    const one = createRedisSubscriber({
      client: client(),
      streams: "orders",
      declare: true,
      backoff: { baseMs: 5, maxMs: 10 },
      onEvent: (event) => void events.push(event),
      ...options,
    });
    await one.start("readers", handle);
    onTestFinished(() => one.stop());
    return one;
  }

  const add = async (body: string, ...more: string[]): Promise<string> =>
    String(await probe.command("XADD", "orders", "*", "body", body, ...more));
  const bodiesOf = (): string[] => got.map(({ body }) => Buffer.from(body as string).toString());
  const pending = async (): Promise<number> =>
    Number(((await probe.command("XPENDING", "orders", "readers")) as number[])[0]);
  const settled = (): Promise<true> => until(async () => (await pending()) === 0, { what: "acknowledgements" });
  const dead = async (): Promise<Map<string, Buffer>[]> =>
    ((await probe.command("XRANGE", "orders.dead", "-", "+")) as [Buffer, Buffer[]][]).map(([, flat]) =>
      fieldsOf(flat),
    );

  describe.each(BOTH)("ordered: $ordered", ({ ordered }) => {
    it("takes what its member had in hand before it died, at once, and counts that attempt", async () => {
      await probe.command("XGROUP", "CREATE", "orders", "readers", "0", "MKSTREAM");
      for (const body of ["1", "2", "3"]) await add(body, "txbox-id", `m-${body}`, "txbox-key", "k");
      await probe.command("XREADGROUP", "GROUP", "readers", "pod-1", "COUNT", "2", "STREAMS", "orders", ">");
      await subscribe(
        recording(() => ({ status: "failed", error: new Error("no") })),
        { ordered, member: "pod-1", maxAttempts: 2, takeOverAfterMs: 60_000 },
      );
      const letters = await until(async () => ((await dead()).length === 3 ? dead() : false), { what: "dead letters" });
      // The first two have failed once with the process that died.
      expect(bodiesOf()).toEqual(["1", "2", "3", "3"]);
      expect(letters.map((fields) => String(fields.get("dead-attempts")))).toEqual(["2", "2", "2"]);
      await settled();
    });

    it("remembers failed attempts across a clean stop, which costs none", async () => {
      await add("1", "txbox-id", "m-1");
      const failing = recording(() => ({ status: "failed", error: new Error("not today") }));
      const first = await subscribe(failing, { ordered, maxAttempts: 4, backoff: { baseMs: 400, maxMs: 400 } });
      await until(() => got.length >= 2, { what: "two attempts" });
      await first.stop();
      await subscribe(failing, { ordered, maxAttempts: 4 });
      const [letter] = await until(async () => ((await dead()).length > 0 ? dead() : false), { what: "a dead letter" });
      expect(String(letter?.get("dead-attempts"))).toBe("4");
      expect(String(letter?.get("dead-error"))).toMatch(/not today/);
      expect(got).toHaveLength(4);
    });

    it("does not lose a slow message to another subscriber, nor one that waits for its next attempt", async () => {
      const delivered = async (takeOverAfterMs: number): Promise<string[]> => {
        await probe.command("FLUSHALL");
        got = [];
        let times = 0;
        const slow = recording(async ({ body }) => {
          if (String(body) === "slow") await sleep(5 * takeOverAfterMs);
          if (String(body) === "retried" && ++times < 2) return { status: "failed", error: new Error("again") };
          return DONE;
        });
        const waitMs = 10 * takeOverAfterMs;
        const options = { ordered, takeOverAfterMs, backoff: { baseMs: waitMs, maxMs: waitMs } };
        const first = await subscribe(slow, options);
        await add("slow", "txbox-id", "m-1");
        await add("retried", "txbox-id", "m-2");
        await until(() => got.length === 2, { what: "both deliveries" });
        const second = await subscribe(slow, options);
        await until(async () => (await pending()) === 0, { what: "the end of both", timeoutMs: 60_000 + 2 * waitMs });
        await Promise.all([first.stop(), second.stop()]);
        return bodiesOf().toSorted();
      };
      for (const takeOverAfterMs of [300, 900, 2700]) {
        const stalls = measureStalls(() => probe.command("PING"));
        const bodies = await delivered(takeOverAfterMs);
        const stalledMs = await stalls.end();
        // Entries are kept every third of this time. A process that stands still for longer has rightly lost them.
        if (bodies.length > 3 && stalledMs > takeOverAfterMs / 3) continue;
        expect(bodies, `longest stall ${stalledMs} ms`).toEqual(["retried", "retried", "slow"]);
        return;
      }
      expect.unreachable("the machine never got on for as long as a take-over takes");
    });

    it("says that an entry was trimmed while it was pending, and goes on", async () => {
      await probe.command("XGROUP", "CREATE", "orders", "readers", "0", "MKSTREAM");
      const id = await add("gone");
      await probe.command("XREADGROUP", "GROUP", "readers", "pod-1", "STREAMS", "orders", ">");
      await probe.command("XTRIM", "orders", "MAXLEN", "0");
      await subscribe(recording(), { ordered, member: "pod-1" });
      await add("next");
      await until(() => got.length === 1, { what: "the next message" });
      await settled();
      expect(events).toMatchObject([{ type: "dead", error: expect.stringContaining(id) as string }]);
      expect(bodiesOf()).toEqual(["next"]);
    });

    it("goes on when the server has lost its data", async () => {
      await subscribe(recording(), { ordered });
      await add("before");
      await until(() => got.length === 1, { what: "the first message" });
      await settled();
      await probe.command("FLUSHALL");
      await add("after");
      await until(() => got.length === 2, { what: "the message after", timeoutMs: 60_000 });
    });

    it("holds no more than its prefetch", async () => {
      const release = Promise.withResolvers<void>();
      for (let n = 0; n < 100; n++) await add(String(n));
      await subscribe(
        recording(async () => {
          await release.promise;
          return DONE;
        }),
        { ordered, prefetch: 20, concurrency: 5 },
      );
      await until(() => got.length === 5, { what: "five at once" });
      await sleep(200);
      expect(await pending()).toBe(20);
      release.resolve();
      await until(() => got.length === 100, { what: "all" });
      await settled();
    });

    it("is through with 10 MB, foreign fields without a body and thousands of fields", async () => {
      await subscribe(
        recording(({ headers }) =>
          headers["f1"] === undefined ? DONE : { status: "rejected", error: new Error("odd") },
        ),
        { ordered },
      );
      await add("x".repeat(10_000_000));
      await probe.command("XADD", "orders", "*", "orderId", "7", "total", "5");
      await probe.command("XADD", "orders", "*", ...Array.from({ length: 5000 }, (_, i) => [`f${i}`, "v"]).flat());
      await add("last");
      await until(() => got.length === 4, { what: "all four" });
      expect(bodiesOf().map((body) => body.length)).toContain(10_000_000);
      expect(got.find(({ headers }) => headers["orderId"] === "7")).toMatchObject({
        body: '{"orderId":"7","total":"5"}',
        routingKey: "orders",
      });
      const [letter] = await until(async () => ((await dead()).length > 0 ? dead() : false), { what: "a dead letter" });
      expect(letter?.size).toBe(5004);
      await settled();
    });

    it("works on when the server was frozen for a while", async () => {
      await subscribe(recording(), { ordered, takeOverAfterMs: 600 });
      await add("1");
      await until(() => got.length === 1, { what: "the first" });
      slot.server.pause();
      await sleep(1200);
      slot.server.resume();
      await add("2");
      await until(() => got.length === 2, { what: "the second", timeoutMs: 60_000 });
      await settled();
    });

    it("leaves no member behind when it is stopped", async () => {
      const one = await subscribe(recording(), { ordered });
      await add("1");
      await until(() => got.length === 1, { what: "a message" });
      await one.stop();
      expect(await probe.command("XINFO", "CONSUMERS", "orders", "readers")).toEqual([]);
      expect(await probe.command("EXISTS", "orders:readers:reader")).toBe(0);
    });

    it("reads several streams", async () => {
      await subscribe(recording(), { ordered, streams: ["orders", "returns"] });
      await add("1");
      await probe.command("XADD", "returns", "*", "body", "2");
      await until(() => got.length === 2, { what: "both" });
      expect(got.map(({ routingKey }) => String(routingKey)).toSorted()).toEqual(["orders", "returns"]);
    });
  });

  it("ordered: a request that arrives after its connection was given up takes nothing away from the one that reads", async () => {
    const proxy = await startTcpProxy(Number(new URL(slot.server.url).port));
    onTestFinished(() => proxy.close());
    const through = client(`redis://127.0.0.1:${proxy.port}`);
    await subscribe(recording(), { client: through, takeOverAfterMs: 900 });
    await add("0", "txbox-id", "m-0", "txbox-key", "k");
    await until(() => got.length === 1, { what: "the first" });
    await settled();
    // The lock was looked at already.
    const late = await withDeadline(proxy.hold("MULTI"), 15_000, "a request");
    await until(() => late.text().includes("EXEC"), { what: "all of it" });
    late.cut();
    await until(() => events.some(({ type }) => type === "recovered"), { what: "another connection" });
    await sleep(400);
    late.arrive("XADD orders * body 1 txbox-id m-1 txbox-key k\r\n");
    await until(async () => Number(await probe.command("XLEN", "orders")) === 2, { what: "the late arrival" });
    await add("2", "txbox-id", "m-2", "txbox-key", "k");
    await until(() => got.length === 3, { what: "the others" });
    expect(bodiesOf()).toEqual(["0", "1", "2"]);
  });

  it("ordered: streams and groups whose names make the same text together do not keep each other from reading", async () => {
    await subscribe(recording(), { streams: "orders:eu", group: "payments" });
    await subscribe(recording(), { streams: "orders", group: "eu:payments" });
    for (const stream of ["orders:eu", "orders"]) await probe.command("XADD", stream, "*", "body", stream);
    await until(() => got.length === 2, { what: "both messages" });
    expect(bodiesOf().sort()).toEqual(["orders", "orders:eu"]);
  });

  it("names what is missing, and the option that creates it", async () => {
    const start = (): Promise<Subscriber> => subscribe(recording(), { declare: false });
    await expect(start()).rejects.toMatchObject({ code: "not_found", message: /no stream "orders".*declare: true/ });
    await add("1");
    await expect(start()).rejects.toMatchObject({ code: "not_found", message: /no group "readers".*declare: true/ });
    await probe.command("XGROUP", "CREATE", "orders", "readers", "0");
    await start();
    await until(() => got.length === 1, { what: "the message" });
    await probe.command("SET", "text", "");
    await expect(subscribe(recording(), { streams: "text" })).rejects.toMatchObject({ message: /something else/ });
  });

  it("says clearly that the password is wrong, or that no server answers", async () => {
    await using closed = await startRedis({ owned: true, settings: { requirepass: "secret" } });
    const wrong = { client: client(closed.url.replace("//", "//:guess@")) };
    await expect(subscribe(recording(), wrong)).rejects.toMatchObject({
      code: "unavailable",
      message: /refuses this client: WRONGPASS/,
    });
    await closed.kill();
    await expect(subscribe(recording(), wrong)).rejects.toMatchObject({ code: "unavailable", message: /ECONNREFUSED/ });
  });

  it("deletes members that are idle and have nothing pending, and only those", async () => {
    await probe.command("XGROUP", "CREATE", "orders", "readers", "0", "MKSTREAM");
    await add("1");
    const join = (member: string): Promise<unknown> =>
      probe.command("XGROUP", "CREATECONSUMER", "orders", "readers", member);
    await probe.command("XREADGROUP", "GROUP", "readers", "has one", "STREAMS", "orders", ">");
    await join("has none");
    const link = new RedisLink(client());
    onTestFinished(() => link.close());
    await link.command(["PING"]);
    await sleep(1600);
    await join("came just now");
    await new StreamGroup(link, "orders", "readers", "me").sweep(1500);
    const left = (await probe.command("XINFO", "CONSUMERS", "orders", "readers")) as Buffer[][];
    expect(left.map((info) => String(info[1])).toSorted()).toEqual(["came just now", "has one"]);
  });
});
