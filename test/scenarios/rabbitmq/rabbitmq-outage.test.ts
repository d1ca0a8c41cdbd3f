import { afterAll, describe, expect, it } from "vitest";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";
import { OUTAGE_MS, surviveOutage } from "../support/broker-outage.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())(`RabbitMQ killed for ${OUTAGE_MS / 1000} s while messages flow`, () => {
  it("loses, doubles and reorders nothing, and blames no message", async () => {
    const { server } = slot;
    await using sending = await testConnection(server.url);
    await using receiving = await testConnection(server.url);
    await surviveOutage({
      publisher: createRabbitmqPublisher({ connection: sending.connection }),
      subscriber: (options) =>
        createRabbitmqSubscriber({
          connection: receiving.connection,
          queue: "effects",
          declare: { bind: { orders: "#" } },
          ...options,
        }),
      prepared: () => server.saveTopology(),
      kill: () => server.kill(),
      comeBack: () => server.restart(),
    });
    const channel = await sending.connection.createChannel();
    expect((await channel.checkQueue("effects")).messageCount).toBe(0);
    expect((await channel.checkQueue("effects.dead")).messageCount).toBe(0);
  });
});
