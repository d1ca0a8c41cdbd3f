import { setTimeout as sleep } from "node:timers/promises";
import { createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import { redisClient, redisProbe } from "../../support/redis-clients.ts";
import type { ReaderConfig } from "./redis-reader-process.ts";

/** A subscriber that dies of poison. */
const { url, stream, ordered, takeOverAfterMs } = JSON.parse(process.argv[2] ?? "{}") as ReaderConfig;
const probe = await redisProbe(url);
const subscriber = createRedisSubscriber({
  client: redisClient("node-redis", url),
  streams: stream,
  ordered,
  takeOverAfterMs,
  maxAttempts: 5,
  declare: true,
});
await subscriber.start("readers", async ({ body }) => {
  const text = Buffer.from(body as string).toString();
  if (text === '"poison"') process.kill(process.pid, "SIGKILL");
  await sleep(5);
  await probe.command("RPUSH", `${stream}:log`, text);
  return { status: "done" };
});
process.stdout.write("ready\n");
