import { MongoClient } from "mongodb";
import type { Contestant } from "../lib/contestant.ts";
import { drainByTxbox, fillTxbox } from "../lib/mongodb-rounds.ts";
import { drainByStream, fillForStream } from "../lib/mongodb-stream-rounds.ts";

/** txbox on MongoDB. Each `fill` begins a collection, which the next `drain` empties. */
export function createMongodb(url: string, source: "claims" | "stream"): Contestant {
  const client = new MongoClient(url);
  let filled = 0;
  const collection = (): string => `outbox_${filled}`;
  return {
    setup: () => Promise.resolve(),
    async fill(messages) {
      // What the rounds before left is in nobody's way.
      if (filled > 0) await client.db().dropDatabase();
      filled += 1;
      if (source === "claims") await fillTxbox(client, collection(), messages);
      else await fillForStream(client, collection(), messages);
    },
    async drain({ messages }) {
      const { handled, ms } = await (source === "claims" ? drainByTxbox : drainByStream)(client, collection());
      return { handled, left: messages - handled, ms };
    },
    close: () => client.close(),
  };
}
