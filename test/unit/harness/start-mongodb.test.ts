import { MongoClient } from "mongodb";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb } from "../../harness/index.ts";

let slot: ServerSlot<MongodbServer>;

beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
}, 240_000);
afterAll(() => slot.stop());

describe("startMongodb", () => {
  test("gives a replica set with transactions", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await connected(slot.server.url, async (client) => {
      const things = client.db("t").collection("things");
      await things.insertOne({ n: 0 });
      const failing = client.withSession((session) =>
        session.withTransaction(async () => {
          await things.insertOne({ n: 1 }, { session });
          throw new Error("no");
        }),
      );
      await expect(failing).rejects.toThrow("no");
      expect(await things.countDocuments()).toBe(1);
    });
  });

  test("keeps acknowledged writes over kill -9 and restart, and over a step-down, on the same port", async ({
    skip,
  }) => {
    skip(slot.skipped, slot.reason);
    const { server } = slot;
    const before = { pid: server.pid, url: server.url };
    await connected(server.url, (client) => client.db("t").collection<{ _id: number }>("kept").insertOne({ _id: 42 }));
    await server.kill();
    expect(server.pid).toBeUndefined();
    await server.restart();
    expect([server.url, server.pid === before.pid]).toEqual([before.url, false]);
    await server.stepDown();
    await connected(server.url, async (client) => {
      expect(await client.db("t").collection("kept").find().toArray()).toEqual([{ _id: 42 }]);
    });
  }, 60_000);

  test("gives a standalone server that knows no transactions", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using server = await startMongodb({ standalone: true });
    await connected(server.url, async (client) => {
      const insert = client.withSession((session) =>
        session.withTransaction(() => client.db("t").collection("things").insertOne({ n: 1 }, { session })),
      );
      await expect(insert).rejects.toThrow(/replica set|retryable writes/);
    });
  });
});

async function connected<T>(url: string, run: (client: MongoClient) => Promise<T>): Promise<T> {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 5000 });
  try {
    return await run(client);
  } finally {
    await client.close();
  }
}
