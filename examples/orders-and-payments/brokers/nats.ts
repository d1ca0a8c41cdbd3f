import { connect } from "@nats-io/transport-node";
import { createNatsPublisher, createNatsSubscriber } from "txbox/nats";
import type { Broker } from "../open-broker.ts";

/** `nats://127.0.0.1:4222`: a JetStream stream for each stream, a durable consumer for each consumer. */
export async function openNats(servers: string): Promise<Broker> {
  const connection = await connect({
    servers,
    maxReconnectAttempts: -1, // by default the client gives up after ten
    reconnectTimeWait: 250,
    waitOnFirstConnect: true,
  });
  return {
    publisher: () => createNatsPublisher({ connection, declare: true }),
    subscriber: ({ stream, consumer, ...more }) =>
      createNatsSubscriber({ connection, stream, durable: consumer, declare: true, ...more }),
    close: () => connection.close(),
  };
}
