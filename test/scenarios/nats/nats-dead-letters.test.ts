import { describe, expect, it } from "vitest";
import { createNatsPublisher } from "../../../src/brokers/nats/index.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startNats } from "../../harness/start-nats.ts";
import { natsWorld, storedMessages } from "../../support/nats-world.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

const slot = await serverOrSkip("NATS", () => startNats({ owned: true }));
await slot.stop();

describe.skipIf(slot.skipped || !hasPostgres())("dead letters of a relay", () => {
  it("go to a JetStream stream of their own, and the message goes out when it is brought back", async () => {
    await using world = await natsWorld();
    await using database = await outboxDatabase();
    const connection = await world.connect();
    await world.manager.streams.add({ name: "dead", subjects: ["dead.>"] });
    const relay = createRelay({
      store: database.store,
      name: "to-nats",
      publisher: createNatsPublisher({ connection }),
      deadLetters: createNatsPublisher({ connection, subject: ({ stream }) => `dead.${stream}`, streamName: "dead" }),
      maintenance: false,
    });
    await relay.start();
    // No stream keeps the subjects of "orders" yet.
    await database.enqueue([{ key: "a", n: 1 }]);
    const [letter] = await storedMessages(world, "dead", 1);
    expect(letter?.subject).toBe("dead.orders");
    expect(JSON.parse(Buffer.from(letter?.body ?? []).toString())).toEqual({ key: "a", n: 1 });
    expect(letter?.headers.get("dead-error")).toMatch(/No JetStream stream keeps the subject "orders\.changed"/);
    expect(letter?.headers.get("dead-by")).toBe("to-nats");

    await world.manager.streams.add({ name: "orders", subjects: ["orders.>"] });
    await until(async () => (await database.store.admin.dead({ relay: "to-nats" })).length === 1, {
      what: "the death",
    });
    expect(await database.store.admin.requeue({ relay: "to-nats" })).toBe(1);
    const [message] = await storedMessages(world, "orders", 1);
    expect(message?.headers.get("txbox-id")).toBe(letter?.headers.get("txbox-id"));
    await relay.stop();
  });
});
