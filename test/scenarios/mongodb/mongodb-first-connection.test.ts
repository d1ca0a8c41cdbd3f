import { MongoClient } from "mongodb";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
}, 60_000);
afterAll(() => slot.stop());

describe("a relay whose client has never been connected", () => {
  it("starts while the server is away, and works once it is there", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    const { server } = slot;
    await using writer = new MongoClient(server.url);
    const store = createMongoStore({ client: writer, database: "first" });
    await store.migrator.migrate();
    const outbox = createOutbox({ store });
    await writer.withSession((session) =>
      session.withTransaction(() => outbox.enqueue(session, { stream: "s", type: "t", key: "k", payload: 1 })),
    );
    await server.kill();

    await using client = new MongoClient(server.url, { serverSelectionTimeoutMS: 300 });
    const sent: string[] = [];
    const errors: string[] = [];
    await using relay = createRelay({
      store: createMongoStore({ client, database: "first" }),
      name: "r",
      leaseMs: 1000,
      maintenance: false,
      publisher: publishEach(async ({ key }) => sent.push(String(key))),
      onEvent: (event) => event.type === "store_error" && errors.push(event.error),
    });
    await relay.start();
    await until(() => errors.length >= 3, { what: "attempts to connect" });
    await server.restart();
    await until(() => sent.length > 0, { what: "delivery", timeoutMs: 60_000 });
    expect(sent).toEqual(["k"]);
  });
});
