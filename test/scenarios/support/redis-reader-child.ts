import { setTimeout as sleep } from "node:timers/promises";
import { createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import { redisClient, redisProbe } from "../../support/redis-clients.ts";
import type { ReaderConfig } from "./redis-reader-process.ts";

/** A subscriber in a process of its own; what it handles, it appends to a list. */
const config = JSON.parse(process.argv[2] ?? "{}") as ReaderConfig;
const { url, stream, ordered, takeOverAfterMs } = config;
const probe = await redisProbe(url);
const subscriber = createRedisSubscriber({
  client: redisClient("node-redis", url),
  streams: stream,
  ordered,
  takeOverAfterMs,
  prefetch: 50,
  declare: true,
});
await subscriber.start("readers", async ({ key, body }) => {
  await sleep(Math.random() * 4);
  await probe.command("RPUSH", `${stream}:log`, `${key}:${Buffer.from(body as string).toString()}`);
  return { status: "done" };
});
process.stdout.write("ready\n");
process.stdin.once("data", () => {
  void subscriber.stop().then(() => process.exit(0));
});
