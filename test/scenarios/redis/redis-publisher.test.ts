import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { createRedisPublisher, type RedisPublisherOptions } from "../../../src/brokers/redis/index.ts";
import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { payloadsOf, sample, samples } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { fieldsOf, redisClient, redisProbe, type RedisProbe } from "../../support/redis-clients.ts";

const slot = await serverOrSkip("Redis", () =>
  startRedis({ owned: true, settings: { "repl-diskless-sync-delay": "0" } }),
);
afterAll(() => slot.stop());

const never = new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);
const published = (count: number): string[] => Array.from({ length: count }, () => "published");
const errorOf = (result: PublishResult | undefined): string =>
  String(result !== undefined && "error" in result ? result.error : undefined);

describe.skipIf(slot.skipped).each(["ioredis", "node-redis"] as const)("Redis publisher with %s", (kind) => {
  let probe: RedisProbe;

  beforeEach(async () => {
    const { server } = slot;
    await server.start().catch(() => undefined);
    probe = await redisProbe(server.url);
    onTestFinished(() => probe[Symbol.asyncDispose]());
    await probe.command("FLUSHALL");
  });

  function publisher(options: Partial<RedisPublisherOptions> = {}, url = slot.server.url): Publisher {
    const one = createRedisPublisher({ client: redisClient(kind, url), ...options });
    onTestFinished(() => one.close?.());
    return one;
  }

  async function bodies(key: string, from = probe): Promise<Message[]> {
    const entries = (await from.command("XRANGE", key, "-", "+")) as [Buffer, Buffer[]][];
    return entries.map(([, flat]) => {
      const fields = fieldsOf(flat);
      return sample("orders", 0, { key: String(fields.get("txbox-key")), body: String(fields.get("body")) });
    });
  }

  it("a batch that is given up does not take one of the other kind with it, and says why", async () => {
    const one = publisher();
    const progress = (how: "new" | "retry") => ({ kind: how, mayBegin: () => true, onResult: () => undefined });
    const send = (how: "new" | "retry", signal = never) =>
      one.publish(samples("orders", [how], 3), signal, progress(how));
    await Promise.all([send("new"), send("retry")]);
    await probe.command("CLIENT", "PAUSE", "60000", "WRITE");
    const stop = new AbortController();
    const [fresh, again] = [send("new"), send("retry", stop.signal)];
    await sleep(50);
    stop.abort(new Error("the stop has reached its deadline"));
    const given = await again;
    await probe.command("CLIENT", "UNPAUSE");
    expect(statuses(await fresh)).toEqual(published(3));
    expect(given[0]).toMatchObject({ status: "unavailable" });
    expect(errorOf(given[0])).toContain("Given up: the stop has reached its deadline");
  });

  it("counts as out when nothing is answered within timeoutMs", async () => {
    const one = publisher({ timeoutMs: 200 });
    await one.publish(samples("orders", ["a"], 1), never);
    await probe.command("CLIENT", "PAUSE", "60000", "WRITE");
    const results = await one.publish(samples("orders", ["a"], 2), never);
    await probe.command("CLIENT", "UNPAUSE");
    expect(errorOf(results[0])).toContain("did not answer within 200 ms");
    expect(statuses(await one.publish(samples("orders", ["b"], 2), never))).toEqual(published(2));
  });

  it("keeps the order of keys through one kill after the other", async () => {
    const keys = ["a", "b", "c"];
    const one = publisher();
    const all: Message[] = [];
    let kills = 0;
    const killing = (async () => {
      while (kills < 6) {
        await sleep(20 + Math.random() * 60);
        await slot.server.restart();
        kills++;
      }
    })();
    const killedOften = (): boolean => kills >= 6;
    for (let n = 0; !killedOften(); n += 200) {
      // Large enough to need several requests.
      let left = samples("orders", keys, 200).map((message, i) => ({
        ...message,
        body: String(n + Math.floor(i / 3)),
      }));
      all.push(...left);
      await until(
        async () => {
          const results = await one.publish(left, never);
          expect(statuses(results).filter((status) => status === "failed" || status === "rejected")).toEqual([]);
          left = left.filter((_, i) => results[i]?.status !== "published");
          return left.length === 0;
        },
        { what: "publishing", intervalMs: 5, timeoutMs: 60_000 },
      );
    }
    await killing;
    const got = await bodies("orders");
    for (const key of keys) {
      // Every message for the first time, in order; whole batches may be there again.
      expect([...new Set(payloadsOf(got, key))]).toEqual(payloadsOf(all, key));
    }
  });

  it("lets nothing of a key overtake, though what follows was sent before the failure was known", async () => {
    await probe.command("XADD", "full", "18446744073709551615-18446744073709551615", "is", "full");
    const keys = Array.from({ length: 10 }, (_, i) => `k${i}`);
    const batch = samples("orders", keys, 100);
    const bad = new Set([batch[333]?.id, batch[704]?.id]);
    const one = publisher({ streamKey: ({ id }) => (bad.has(id) ? "full" : "orders") });
    const results = await one.publish(batch, never);
    expect(statuses(results).filter((status) => status === "unavailable")).toHaveLength(2);
    for (const i of [333, 704]) {
      expect(results[i]).toMatchObject({ status: "unavailable", route: "full" });
      expect(errorOf(results[i])).toMatch(/"full".*ids have run out.*delete it/);
    }
    const left = batch.filter((_, i) => results[i]?.status === "held");
    expect(new Set(left.map(({ key }) => key))).toEqual(new Set(["k3", "k4"]));
    const got = await bodies("orders");
    const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
    for (const key of keys) expect(payloadsOf(got, key)).toEqual(upTo({ k3: 33, k4: 70 }[key] ?? 100));
    expect(await probe.command("KEYS", "txbox:*")).toEqual([]);
  });

  it("calls a full memory an outage, and goes on in order when there is room", async () => {
    await using small = await startRedis({ owned: true, settings: { maxmemory: "4mb" } });
    await using inside = await redisProbe(small.url);
    const one = publisher({}, small.url);
    const all = samples("orders", ["a", "b"], 150).map((message, i) => ({
      ...message,
      body: JSON.stringify({ i, x: "x".repeat(20_000) }),
    }));
    let full: PublishResult | undefined;
    const left: Message[] = [];
    for (let from = 0; from < all.length; from += 20) {
      const batch = full === undefined ? all.slice(from, from + 20) : [];
      const results = await one.publish(batch, never);
      full ??= results.find(({ status }) => status !== "published");
      left.push(...all.slice(from, from + 20).filter((_, i) => results[i]?.status !== "published"));
    }
    expect(full?.status).toBe("unavailable");
    expect(errorOf(full)).toMatch(/full: OOM.*maxmemory/);
    await inside.command("CONFIG", "SET", "maxmemory", "0");
    expect(statuses(await one.publish(left, never))).toEqual(published(left.length));
    const numbers = (await bodies("orders", inside)).map(({ body }) => (JSON.parse(String(body)) as { i: number }).i);
    expect(numbers).toEqual(all.map((_, i) => i));
  });

  it("holds a key back through all requests of a batch, and no other", async () => {
    await probe.command("SET", "taken", "no stream");
    const keys = ["refused", "unsealed", "fine"];
    const all = samples("orders", keys, 500);
    const one = publisher({
      streamKey(message) {
        if (message === all[3 * 20]) return "taken";
        // Seen while an earlier request is under way.
        if (message === all[3 * 200 + 1]) throw new Error("no name for it");
        return "orders";
      },
    });
    const results = await one.publish(all, never);
    const ofKey = (key: string): string[] => statuses(results.filter((_, i) => all[i]?.key === key));
    const held = (count: number): string[] => Array.from({ length: count }, () => "held");
    expect(ofKey("refused")).toEqual([...published(20), "rejected", ...held(479)]);
    expect(ofKey("unsealed")).toEqual([...published(200), "failed", ...held(299)]);
    expect(ofKey("fine")).toEqual(published(500));
    const got = await bodies("orders");
    for (const [key, count] of [["refused", 20] as const, ["unsealed", 200] as const, ["fine", 500] as const]) {
      expect(payloadsOf(got, key)).toEqual(payloadsOf(all, key).slice(0, count));
    }
  });

  it("waits for replicas if it is told to, and finds its way to a replica that became the master", async () => {
    await using replica = await startRedis({ owned: true });
    await using inside = await redisProbe(replica.url);
    const careful = publisher({ replicas: { count: 1, timeoutMs: 100 } });
    const [alone] = await careful.publish([sample("orders", 1)], never);
    expect(alone?.status).toBe("unavailable");
    expect(errorOf(alone)).toMatch(/0 of 1 replicas/);

    await inside.command("REPLICAOF", "127.0.0.1", String(slot.server.port));
    await until(async () => statuses(await careful.publish([sample("orders", 2)], never))[0] === "published", {
      what: "a replica that confirms",
      timeoutMs: 60_000,
    });
    expect((await bodies("orders", inside)).at(-1)?.body).toBe("2");

    const astray = publisher({}, replica.url);
    const [readonly] = await astray.publish([sample("orders", 3)], never);
    expect(readonly?.status).toBe("unavailable");
    expect(errorOf(readonly)).toMatch(/READONLY/);
    await inside.command("REPLICAOF", "NO", "ONE");
    expect(statuses(await astray.publish([sample("orders", 3)], never))).toEqual(["published"]);
  });

  it("names the stream that is missing, and the option that creates it", async () => {
    const [missing] = await publisher({ declare: false }).publish([sample("ordres", 1)], never);
    expect(missing?.status).toBe("rejected");
    expect(errorOf(missing)).toMatch(/no stream "ordres".*declare: true/);
    expect(statuses(await publisher().publish([sample("ordres", 1)], never))).toEqual(["published"]);
  });

  it("keeps the messages of a stream that is gone or was replaced, and sends all others", async () => {
    await probe.command("XADD", "known", "*", "is", "there");
    await probe.command("XADD", "other", "*", "is", "there");
    const one = publisher({ declare: false });
    const batch = (): Message[] => [sample("known", 1), sample("other", 2), sample("known", 3), sample("other", 4)];
    expect(statuses(await one.publish(batch(), never))).toEqual(published(4));
    for (const breaking of [
      ["DEL", "known"],
      ["SET", "known", "no stream"],
    ]) {
      await probe.command(...breaking);
      const results = await one.publish(batch(), never);
      expect(statuses(results)).toEqual(["unavailable", "published", "held", "published"]);
      expect(results[0]).toMatchObject({ route: "known" });
    }
  });

  it("blames no message for a command that the server does not know, or that its user may not run", async () => {
    await using strange = await startRedis({ owned: true, settings: { "rename-command": "XADD SOMETHING" } });
    const results = await publisher({}, strange.url).publish(samples("orders", ["a", "b"], 2), never);
    expect(statuses(results)).toEqual(Array.from({ length: 4 }, () => "unavailable"));
    await using strange2 = await startRedis({ owned: true, settings: { "rename-command": "EVALSHA SOMETHING" } });
    const others = await publisher({}, strange2.url).publish(samples("orders", ["a", "b"], 2), never);
    expect(statuses(others)).toEqual(Array.from({ length: 4 }, () => "unavailable"));
    expect(errorOf(others[0])).toMatch(/unknown command/);
  });

  it("says that a server belongs to a cluster", async () => {
    await using node = await startRedis({ owned: true, settings: { "cluster-enabled": "yes" } });
    const results = await publisher({}, node.url).publish(samples("orders", ["a", "b"], 2), never);
    expect(statuses(results)).toEqual(Array.from({ length: 4 }, () => "unavailable"));
    expect(errorOf(results[0])).toMatch(/cluster, which is not supported/);
  });

  it("waits for a server that takes connections and says nothing no longer than for any answer", async () => {
    const silent = createServer().listen(0, "127.0.0.1");
    onTestFinished(() => void silent.close());
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    const [patient, closed] = [publisher({}, `redis://127.0.0.1:${port}`), publisher({}, `redis://127.0.0.1:${port}`)];
    const waiting = patient.publish(samples("orders", ["a"], 2), never);
    const ending = closed.publish(samples("orders", ["a"], 2), never);
    await closed.close?.();
    expect(statuses(await ending)).toEqual(["unavailable", "unavailable"]);
    expect(statuses(await waiting)).toEqual(["unavailable", "unavailable"]);
  });

  it("says once and clearly that the password is wrong", async () => {
    await using closed = await startRedis({ owned: true, settings: { requirepass: "secret" } });
    const wrong = publisher({}, closed.url.replace("//", "//:guess@"));
    for (let i = 0; i < 3; i++) {
      const [result] = await wrong.publish([sample("orders", 1)], never);
      expect(result?.status).toBe("unavailable");
      expect(errorOf(result)).toMatch(/refuses this client: WRONGPASS.*password/);
    }
    const right = publisher({}, closed.url.replace("//", "//:secret@"));
    expect(statuses(await right.publish([sample("orders", 1)], never))).toEqual(["published"]);
  });

  it("finds the message that is too large also where it may not ask for the limit", async () => {
    await using strict = await startRedis({ owned: true, settings: { "proto-max-bulk-len": "1mb" } });
    await using inside = await redisProbe(strict.url);
    await inside.command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config");
    const one = publisher({}, strict.url.replace("//", "//app:pw@"));
    const batch = samples("orders", ["a", "b", "c", "d"], 3).map((message, i) =>
      i === 5 ? { ...message, body: "x".repeat(1024 * 1024 + 1) } : message,
    );
    const results: (PublishResult | undefined)[] = batch.map(() => undefined);
    const left = (): number[] =>
      [...batch.keys()].filter((i) => !/published|rejected|failed/.test(String(results[i]?.status)));
    // As the relay does; the server's refusal may be lost with the connection that it closes.
    for (let round = 0; round < 3; round++) {
      const trying = left();
      const answers = await one.publish(
        trying.map((i) => batch[i]!),
        never,
      );
      for (const [n, i] of trying.entries()) results[i] = answers[n];
      if (/rejected|failed/.test(String(results[5]?.status))) break;
    }
    expect(results[5]?.status).toMatch(/rejected|failed/);
    // The next one of its key waits.
    expect(results[9]?.status).toBe("held");
    expect(left()).toEqual([9]);
    expect(await bodies("orders", inside)).toHaveLength(10);
  });

  it("does not mind that the server forgets its scripts", async () => {
    const one = publisher();
    expect(statuses(await one.publish([sample("orders", 1)], never))).toEqual(["published"]);
    await probe.command("SCRIPT", "FLUSH");
    expect(statuses(await one.publish([sample("orders", 2)], never))).toEqual(["published"]);
  });

  it("trims by length and by age", async () => {
    const byLength = publisher({ trim: { maxLength: 200 } });
    for (let i = 0; i < 10; i++) await byLength.publish(samples("orders", ["k"], 100), never);
    expect(Number(await probe.command("XLEN", "orders"))).toBeLessThanOrEqual(300);
    expect(Number(await probe.command("XLEN", "orders"))).toBeGreaterThanOrEqual(200);
    await publisher().publish(samples("others", ["k"], 500), never);
    await sleep(50);
    await publisher({ trim: { maxAgeMs: 20 } }).publish(samples("others", ["k"], 10), never);
    expect(Number(await probe.command("XLEN", "others"))).toBeLessThanOrEqual(110);
    await publisher({ trim: { maxAgeMs: 60_000 } }).publish(samples("others", ["k"], 100), never);
    expect(Number(await probe.command("XLEN", "others"))).toBeGreaterThanOrEqual(110);
  });

  it("spreads keys over partitions, each key in one and in order", async () => {
    const one = publisher({ partitions: 4 });
    const keys = Array.from({ length: 40 }, (_, i) => `k${i}`);
    const all = samples("orders", keys, 5);
    expect(statuses(await one.publish(all, never))).toEqual(published(200));
    const parts = await Promise.all([0, 1, 2, 3].map((part) => bodies(`orders.${part}`)));
    expect(parts.every((part) => part.length > 0)).toBe(true);
    for (const key of keys) {
      const having = parts.filter((part) => part.some((message) => message.key === key));
      expect(having).toHaveLength(1);
      expect(payloadsOf(having[0] ?? [], key)).toEqual([0, 1, 2, 3, 4]);
    }
  });

  it("rejects what its user cannot name a stream for", async () => {
    const one = publisher({ streamKey: ({ key }) => (key === "bad" ? "" : "orders") });
    const results = await one.publish([sample("s", 1, { key: "bad" }), sample("s", 2, { key: "good" })], never);
    expect(statuses(results)).toEqual(["rejected", "published"]);
  });

  it("honours the client's own connection options", async () => {
    const one = publisher({}, `${slot.server.url}/3`);
    await one.publish([sample("orders", 1)], never);
    expect(Number(await probe.command("XLEN", "orders"))).toBe(0);
    await probe.command("SELECT", "3");
    expect(Number(await probe.command("XLEN", "orders"))).toBe(1);
  });
});
