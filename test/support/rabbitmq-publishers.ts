import { randomBytes } from "node:crypto";
import type { ConfirmChannel } from "amqplib";
import { createRabbitmqPublisher, type RabbitmqPublisherOptions } from "../../src/brokers/rabbitmq/index.ts";
import type { Publisher } from "../../src/core/contracts.ts";
import { testConnection, type TestConnection } from "./rabbitmq-connection.ts";

/** A connection with a stream of its own, and publishers that are closed with it. */
export interface PublisherScene extends AsyncDisposable {
  readonly link: TestConnection;
  readonly channel: ConfirmChannel;
  readonly stream: string;
  publisherWith(options?: Partial<RabbitmqPublisherOptions>): Publisher;
}

export async function publisherScene(url: string): Promise<PublisherScene> {
  const link = await testConnection(url);
  const channel = await link.connection.createConfirmChannel();
  const open: Publisher[] = [];
  return {
    link,
    channel,
    stream: `s-${randomBytes(5).toString("hex")}`,
    publisherWith(options = {}) {
      const publisher = createRabbitmqPublisher({ connection: link.connection, ...options });
      open.push(publisher);
      return publisher;
    },
    async [Symbol.asyncDispose]() {
      for (const publisher of open) await publisher.close?.();
      await link[Symbol.asyncDispose]();
    },
  };
}
