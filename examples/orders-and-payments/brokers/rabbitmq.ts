import { connect } from "amqplib";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "txbox/rabbitmq";
import type { Broker } from "../open-broker.ts";

/** `amqp://127.0.0.1`: an exchange for each stream, a quorum queue for each consumer, bound to the exchange. */
export async function openRabbitmq(url: string): Promise<Broker> {
  const connection = await connect(url, { recovery: { initialDelay: 100, maxDelay: 1000 } });
  return {
    publisher: () => createRabbitmqPublisher({ connection }),
    subscriber: ({ stream, consumer, ...more }) =>
      createRabbitmqSubscriber({ connection, queue: consumer, declare: { bind: { [stream]: "#" } }, ...more }),
    close: () => connection.close(),
  };
}
