import type { Publisher, Subscriber } from "txbox";

/** All that the services need to know of a broker. */
export interface Broker {
  publisher(): Publisher;
  subscriber(options: SubscriberOptions): Subscriber;
  close(): Promise<unknown>;
}

export interface SubscriberOptions {
  stream: string;
  /** Who takes it: the name of a queue, a group or a durable. */
  consumer: string;
  concurrency?: number;
  prefetch?: number;
}

export const BROKERS = ["redis", "kafka", "nats", "rabbitmq"] as const;
export type BrokerName = (typeof BROKERS)[number];

/** Only the client of the broker that is used is loaded. */
export async function openBroker(name: string, url: string): Promise<Broker> {
  switch (name) {
    case "redis":
      return (await import("./brokers/redis.ts")).openRedis(url);
    case "kafka":
      return (await import("./brokers/kafka.ts")).openKafka(url);
    case "nats":
      return (await import("./brokers/nats.ts")).openNats(url);
    case "rabbitmq":
      return (await import("./brokers/rabbitmq.ts")).openRabbitmq(url);
    default:
      throw new Error(`There is no broker ${name}; use one of ${BROKERS.join(", ")}`);
  }
}
