import { connect } from "@nats-io/transport-node";
import { afterAll, describe, it } from "vitest";
import { createNatsPublisher, createNatsSubscriber } from "../../../src/brokers/nats/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startNats } from "../../harness/start-nats.ts";
import { OUTAGE_MS, surviveOutage } from "../support/broker-outage.ts";

const slot = await serverOrSkip("NATS", () => startNats({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())(`NATS killed for ${OUTAGE_MS / 1000} s while messages flow`, () => {
  it("loses, doubles and reorders nothing, and blames no message", async () => {
    const { server } = slot;
    const options = { servers: server.url, maxReconnectAttempts: -1, reconnectTimeWait: 100, reconnectJitter: 0 };
    const [sending, receiving] = [await connect(options), await connect(options)];
    try {
      await surviveOutage({
        publisher: createNatsPublisher({ connection: sending, declare: true }),
        subscriber: (more) =>
          createNatsSubscriber({ connection: receiving, stream: "orders", declare: true, ackWaitMs: 5000, ...more }),
        kill: () => server.kill(),
        comeBack: () => server.restart(),
      });
    } finally {
      await Promise.all([sending.close(), receiving.close()]);
    }
  });
});
