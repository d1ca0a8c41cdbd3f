import { Redis } from "ioredis";
import { createRedisPublisher, createRedisSubscriber } from "../../src/brokers/redis/index.ts";
import { createGate } from "../lib/gate.ts";
import { STREAM } from "../lib/messages.ts";
import { type Broker, CONCURRENCY, CONSUMER, PREFETCH } from "./broker.ts";

const BLOCK_MS = 100;

type Entry = [id: string, fields: string[]];

export async function openRedis(address: string): Promise<Broker> {
  const client = new Redis(address, { lazyConnect: true });
  await client.connect();
  return {
    async reset() {
      await client.del(STREAM);
      await client.xgroup("CREATE", STREAM, CONSUMER, "0", "MKSTREAM");
    },
    arrived: () => client.xlen(STREAM),
    async unread() {
      const [group] = (await client.xinfo("GROUPS", STREAM)) as (string | number)[][];
      const value = (name: string): number => Number(group?.[group.indexOf(name) + 1]);
      return value("pending") + value("lag");
    },
    publisher: () => Promise.resolve(createRedisPublisher({ client })),
    subscriber: () => Promise.resolve(createRedisSubscriber({ client, streams: STREAM })),
    async rawPublisher(messages) {
      // No part of the API: a commit that this one is compared with may not have it.
      const { encodeEntry, NAME_END } = await import("../../src/brokers/redis/redis-envelope.ts");
      const ready = messages.map((message) => {
        const { shape, values } = encodeEntry(message, "native", undefined);
        return shape.split(NAME_END).flatMap((name, i) => [name, values[i]!]);
      });
      return async (from: number, to: number) => {
        const pipeline = client.pipeline();
        for (let i = from; i < to; i += 1) pipeline.xadd(STREAM, "*", ...ready[i]!);
        const replies = await pipeline.exec();
        const failed = replies?.find(([error]) => error !== null);
        if (failed !== undefined) throw failed[0]!;
      };
    },
    async rawConsumer(handle) {
      const reading = client.duplicate();
      const gate = createGate(CONCURRENCY);
      let stopping = false;
      let inHand = 0;
      let room = (): void => undefined;
      const take = async ([entryId, fields]: Entry): Promise<void> => {
        const field = (name: string): string => fields[fields.indexOf(name) + 1] ?? "";
        await gate(() => handle({ id: field("txbox-id"), body: field("body") }));
        void client.xack(STREAM, CONSUMER, entryId);
        inHand -= 1;
        room();
      };
      const read = async (): Promise<void> => {
        while (!stopping) {
          while (inHand >= PREFETCH) await new Promise<void>((resolve) => (room = resolve));
          const reply = (await reading.xreadgroup(
            ...(["GROUP", CONSUMER, "hand", "COUNT", PREFETCH - inHand, "BLOCK", BLOCK_MS] as const),
            ...(["STREAMS", STREAM, ">"] as const),
          )) as [string, Entry[]][] | null;
          for (const entry of reply?.[0]?.[1] ?? []) {
            inHand += 1;
            void take(entry);
          }
        }
      };
      const running = read();
      return async () => {
        stopping = true;
        room();
        await running;
        reading.disconnect();
      };
    },
    async [Symbol.asyncDispose]() {
      await client.quit();
    },
  };
}
