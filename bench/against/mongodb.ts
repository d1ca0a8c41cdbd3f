import { startMongodb } from "../../test/harness/index.ts";
import { mustEqual } from "../lib/rounds.ts";
import { compare } from "./sides.ts";
import type { Sides } from "./sides.ts";

/** A relay drains MongoDB by claims, and by change stream; every round has messages and a collection of its own. */
export async function compareMongodb(sides: Sides): Promise<void> {
  const { context, ref } = sides;
  if (!ref.has("src/stores/mongodb/index.ts")) {
    context.say(`mongodb: SKIPPED, ${ref.ref} has no store for it`);
    return;
  }
  const messages = context.quick ? 10_000 : 50_000;
  const rounds = context.quick ? { count: 6, budgetMs: 25_000 } : { count: 10, budgetMs: 180_000 };
  await using server = await startMongodb({ owned: true, cacheGb: 2 });
  const sources = [["mongodb_drain", "mongodb-claims"]] as [string, "mongodb-claims" | "mongodb-stream"][];
  if (ref.has("src/stores/mongodb/change-reader.ts")) sources.push(["mongodb_stream", "mongodb-stream"]);
  for (const [figure, contestant] of sources) {
    context.say(`${figure.replace("_", ": ")}: measuring`);
    await compare(sides, rounds, { [figure]: { unit: "msg/s" } }, async (side) => {
      const player = side.player(contestant, databaseIn(server.url, `${contestant}_${side.name}`));
      const measure = async (): Promise<Record<string, number>> => {
        await player.fill(messages);
        const { handled, ms } = await player.drain({ messages });
        mustEqual(`${figure} of ${side.name}, messages handled`, handled, messages);
        return { [figure]: (messages * 1000) / ms };
      };
      await measure();
      return measure;
    });
    await context.clear();
  }
}

function databaseIn(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}
