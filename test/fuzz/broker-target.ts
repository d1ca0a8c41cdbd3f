import type { Subscriber } from "../../src/core/contracts.ts";
import type { Message } from "../../src/core/message.ts";
import type { SubscriberEvent } from "../../src/core/events.ts";
import type { EnvelopeOptions, HostileEnvelope } from "./hostile-envelope.ts";

/** A broker, and a hostile producer on it that uses the raw client. */
export interface BrokerTarget extends AsyncDisposable, EnvelopeOptions {
  subscriber(onEvent: (event: SubscriberEvent) => void): Promise<Subscriber>;
  /** In order. Which of them the broker has taken: it may refuse some, and the client too. */
  sendHostile(envelopes: readonly HostileEnvelope[]): Promise<boolean[]>;
  /** As txbox sends them. */
  sendGood(messages: readonly Message[]): Promise<void>;
  /** The bytes of dead letters since the last call. */
  newDead(): Promise<Uint8Array[]>;
}

export type BrokerName = "redis" | "kafka" | "nats" | "rabbitmq";

export const BROKERS: readonly BrokerName[] = ["redis", "kafka", "nats", "rabbitmq"];

export async function openTarget(broker: BrokerName): Promise<BrokerTarget> {
  switch (broker) {
    case "redis":
      return (await import("./targets/redis-target.ts")).redisTarget();
    case "kafka":
      return (await import("./targets/kafka-target.ts")).kafkaTarget();
    case "nats":
      return (await import("./targets/nats-target.ts")).natsTarget();
    case "rabbitmq":
      return (await import("./targets/rabbitmq-target.ts")).rabbitmqTarget();
  }
}

/** Bytes of a field for brokers whose headers are bytes. */
export function fieldBytes(value: unknown): Buffer {
  return Buffer.isBuffer(value) ? value : Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
}
