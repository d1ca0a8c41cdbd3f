import { MongoClient } from "mongodb";
import { afterAll, beforeAll, describe } from "vitest";
import { storeConformance } from "../../../src/testing/index.ts";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { mongodbByStream } from "../targets.ts";
import { mongodbContext, type Clients } from "./mongodb-context.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());

describe.skipIf(slot.skipped)("store conformance", () => {
  let clients: Clients;

  beforeAll(async () => {
    const open = (): Promise<MongoClient> => new MongoClient(slot.server.url).connect();
    clients = { client: await open(), other: await open(), database: "conformance_by_stream" };
  });
  afterAll(async () => {
    await clients.client.db(clients.database).dropDatabase();
    await Promise.all([clients.client.close(), clients.other.close()]);
    await slot.stop();
  });

  conformanceSuite(mongodbByStream, storeConformance, () => mongodbContext(clients, "stream"));
});
