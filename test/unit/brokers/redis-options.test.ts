import { Cluster, Redis } from "ioredis";
import { createClient, createClientPool, createCluster, createSentinel } from "redis";
import { describe, expect, it } from "vitest";
import {
  createRedisPublisher,
  createRedisReceiptFilter,
  createRedisSubscriber,
} from "../../../src/brokers/redis/index.ts";
import { explainRedis, isReply } from "../../../src/brokers/redis/redis-errors.ts";

const client = createClient();

describe("options of the Redis adapters", () => {
  it("take clients of ioredis and node-redis, without connecting them", () => {
    const ioredis = new Redis({ lazyConnect: true });
    const sentinels = [{ host: "127.0.0.1", port: 1 }];
    const throughSentinel = new Redis({ name: "main", sentinels, lazyConnect: true });
    const sentinel = createSentinel({ name: "main", sentinelRootNodes: sentinels });
    for (const one of [client, ioredis, throughSentinel, sentinel]) {
      expect(() => createRedisPublisher({ client: one })).not.toThrow();
      expect(() => createRedisSubscriber({ client: one, streams: "orders" })).not.toThrow();
      expect(() => createRedisReceiptFilter({ client: one })).not.toThrow();
    }
    expect(ioredis.status).toBe("wait");
    expect(client.isOpen).toBe(false);
  });

  it("refuse what is no client, and say what to pass", () => {
    for (const wrong of [undefined, null, {}, "redis://", { sendCommand: () => undefined }, new Map()]) {
      expect(() => createRedisPublisher({ client: wrong as never })).toThrow(/needs a Redis client.*ioredis.*redis/);
    }
    expect(() => createRedisPublisher(undefined as never)).toThrow(/needs a Redis client/);
  });

  it("refuse clients of a cluster", () => {
    const ioredis = new Cluster(["redis://127.0.0.1:1"], { lazyConnect: true });
    const nodeRedis = createCluster({ rootNodes: [{ url: "redis://127.0.0.1:1" }] });
    expect(() => createRedisPublisher({ client: ioredis })).toThrow(/Cluster is not supported/);
    expect(() => createRedisPublisher({ client: nodeRedis as never })).toThrow(/Cluster is not supported/);
    ioredis.disconnect();
  });

  it("refuse a pool, and a client of replicas", () => {
    expect(() => createRedisPublisher({ client: createClientPool() as never })).toThrow(/pool of clients is not supp/);
    const replicas = new Redis({ name: "main", sentinels: [{ port: 1 }], role: "slave", lazyConnect: true });
    expect(() => createRedisSubscriber({ client: replicas, streams: "orders" })).toThrow(/replicas.*role: "slave"/);
  });

  it("refuse a Sentinel client that cannot lend its master", () => {
    const old = { getSentinelNode: () => undefined, duplicate: () => undefined, sendCommand: () => undefined };
    expect(() => createRedisPublisher({ client: old as never })).toThrow(/redis 5 or later/);
  });

  it.each([
    [{ stream: "orders" }, /no option "stream".*streamKey/],
    [{ partitions: 65 }, /partitions/],
    [{ trim: { maxLen: 5 } }, /no option "maxLen".*maxLength/],
    [{ trim: { maxLength: 5, maxAgeMs: 5 } }, /not both/],
    [{ trim: { maxLength: 0 } }, /trim\.maxLength/],
    [{ replicas: { count: 0, timeoutMs: 5 } }, /replicas\.count/],
    [{ envelope: "xml" }, /"native" or "cloudevents"/],
    [{ streamKey: "orders" }, /streamKey/],
  ])("of a publisher: %o is refused", (options, message) => {
    expect(() => createRedisPublisher({ client, ...(options as object) })).toThrow(message);
  });

  it.each([
    [{}, /streams must be a name or a list/],
    [{ streams: [] }, /streams must be a name or a list/],
    [{ streams: "a", stream: "b" }, /no option "stream"/],
    [{ streams: "a", takeOverAfterMs: 1 }, /takeOverAfterMs/],
    [{ streams: "a", member: "" }, /member/],
    [{ streams: "a", deadLetter: 5 }, /deadLetter/],
    [{ streams: "a", concurrency: 0 }, /concurrency/],
  ])("of a subscriber: %o is refused", (options, message) => {
    expect(() => createRedisSubscriber({ client, ...options } as never)).toThrow(message);
  });
});

describe("what Redis says", () => {
  it.each([
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "MISCONF Redis is configured to save RDB snapshots",
    "NOREPLICAS Not enough good replicas to write.",
    "MOVED 3999 127.0.0.1:6381",
    "NOPERM User app has no permissions to run the 'xadd' command",
    "ERR max number of clients reached",
  ])("%s: not the message's fault", (text) => {
    expect(explainRedis(new Error(text))).toMatchObject({ code: "unavailable", retryable: true });
  });

  it.each([
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "CLUSTERDOWN Hash slot not served",
  ])("%s: names the cluster", (text) => {
    expect(explainRedis(new Error(text)).message).toMatch(/node of a cluster.*Sentinel/);
  });

  it("tells answers from lost connections", () => {
    expect(isReply(new Error("ERR no"))).toBe(true);
    expect(isReply(new Error("WRONGTYPE Operation"), "WRONGTYPE")).toBe(true);
    for (const text of ["Connection is closed.", "read ECONNRESET", "Socket closed unexpectedly", "write EPIPE"]) {
      expect(isReply(new Error(text))).toBe(false);
    }
  });
});
