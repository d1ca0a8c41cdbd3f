import { Redis } from "ioredis";
import { createClient } from "redis";
import type { RedisClient } from "../../src/brokers/redis/index.ts";

export type RedisClientKind = "ioredis" | "node-redis";

/** A client as an application builds it, with its defaults; adapters take its options and leave it unconnected. */
export function redisClient(kind: RedisClientKind, url: string): RedisClient {
  if (kind === "node-redis") return createClient({ url });
  const client = new Redis(url, { lazyConnect: true });
  client.on("error", () => undefined);
  return client;
}

/** The tests' own way in: plain commands, with answers as bytes. */
export interface RedisProbe extends AsyncDisposable {
  command(...args: (string | Buffer)[]): Promise<unknown>;
}

export async function redisProbe(url: string): Promise<RedisProbe> {
  const client = createClient({ url, RESP: 2, socket: { reconnectStrategy: 20 } });
  client.on("error", () => undefined);
  await client.connect();
  return {
    command: (...args) => client.sendCommand(args, { typeMapping: { 36: Buffer } }),
    [Symbol.asyncDispose]: async () => client.destroy(),
  };
}

/** Fields and values of a reply, by name. */
export function fieldsOf(flat: readonly Buffer[]): Map<string, Buffer> {
  return new Map(flat.flatMap((name, i) => (i % 2 === 0 ? [[name.toString(), flat[i + 1]!] as const] : [])));
}
