import { Admin, Consumer, Producer } from "@platformatic/kafka";
import { createKafkaPublisher, createKafkaSubscriber } from "txbox/kafka";
import type { Broker } from "../open-broker.ts";

/** `127.0.0.1:9092,…`: a topic for each stream, a consumer group for each consumer. */
export function openKafka(url: string): Broker {
  const common = { clientId: `orders-and-payments-${process.pid}`, bootstrapBrokers: url.split(",") };
  const closing: (() => Promise<unknown>)[] = [];
  const keep = <T extends { close(): Promise<unknown> }>(client: T): T => {
    closing.push(() => client.close());
    return client;
  };
  const producer = (): Producer =>
    keep(new Producer({ ...common, idempotent: true, retries: 3, retryDelay: 100, connectTimeout: 2000 }));
  const admin = keep(new Admin({ ...common, connectTimeout: 2000 }));
  const declare = { admin, partitions: 4 };
  const consumers = new Map<string, { consumer: Consumer; producer: Producer }>();

  return {
    publisher: () => createKafkaPublisher({ producer: producer(), declare }),
    subscriber({ stream, consumer: groupId, ...more }) {
      const clients = consumers.get(groupId) ?? {
        consumer: keep(new Consumer({ ...common, groupId, retries: false, connectTimeout: 2000 })),
        producer: producer(),
      };
      consumers.set(groupId, clients);
      // A process that was killed is missed after six seconds, the shortest time that brokers allow by default.
      return createKafkaSubscriber({ ...clients, topics: [stream], declare, sessionTimeoutMs: 6000, ...more });
    },
    close: () => Promise.all(closing.map((close) => close())),
  };
}
