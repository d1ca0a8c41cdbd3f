import {
  createSubscriber,
  flag,
  invalidOption,
  milliseconds,
  optional,
  readOptions,
  required,
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  text,
  type OptionSpec,
  type OptionSpecs,
  type SubscriberOptions,
} from "../../adapter/index.ts";
import type { Subscriber } from "../../core/contracts.ts";
import { shownValue } from "../../core/value-kind.ts";
import { requireConnection, type NatsConnection } from "./nats-client.ts";
import { NatsConsumption } from "./nats-consumption.ts";
import { isSubject, resourceName } from "./nats-subject.ts";
import { prepareConsumer, type ConsumerDeclaration } from "./prepare-consumer.ts";

export interface NatsSubscriberOptions extends SubscriberOptions {
  /** From `connect()` of @nats-io/transport-node, with `maxReconnectAttempts: -1`. It stays yours to close. */
  connection: NatsConnection;
  /** The JetStream stream. */
  stream: string;
  /** The durable pull consumer. Default: the consumer's name. */
  durable?: string;
  /** Which subjects of the stream, for a consumer that `declare` creates: `orders.*.created`. Default: all. */
  filter?: string;
  /**
   * True (default): one process at a time takes from this consumer, so that keys keep their order. False: several do, and
   * messages of a key may be handled by two of them, out of order.
   */
  ordered?: boolean;
  /** The subject for messages that cannot be handled. Default: `<stream>-dead`. */
  deadLetter?: string;
  /** Create the stream, the consumer and the stream of dead letters, as far as they are missing. */
  declare?: boolean | ConsumerDeclaration;
  /** How long JetStream waits for a sign of life before it delivers again; for `declare`. Default 30 s. */
  ackWaitMs?: number;
  /** JetStream domain. */
  domain?: string;
  /** As in the connection's options, if it has one. Default `_INBOX`. */
  inboxPrefix?: string;
}

/** A name of JetStream, such as that of a stream. */
function resource(what: string): OptionSpec<string> {
  return {
    read(of, name, value) {
      if (typeof value === "string" && value !== "" && resourceName(value) === value) return value;
      const fix = `Set ${name} to a name without wildcards, spaces, slashes and dots`;
      throw invalidOption(of, name, `${JSON.stringify(value)} cannot name a ${what}`, fix);
    },
  };
}

const DEAD_LETTER: OptionSpec<string> = {
  read(of, name, value) {
    if (typeof value === "string" && isSubject(value)) return value;
    const fix = `Set ${name} to a name without wildcards and spaces`;
    throw invalidOption(of, name, `${shownValue(value)} is no subject to publish to`, fix);
  },
};

const DECLARE: OptionSpec<boolean | ConsumerDeclaration> = {
  read(of, name, value = false) {
    if (typeof value === "boolean" || (typeof value === "object" && value !== null)) {
      return value;
    }
    throw invalidOption(of, name, "it must be true, false or settings", "Set declare: true");
  },
};

const OPTIONS = {
  ...SUBSCRIBER_OPTIONS,
  connection: required(requireConnection),
  stream: resource("stream"),
  durable: optional(resource("consumer")),
  filter: optional(text('Pass filter: "orders.*.created"')),
  ordered: flag(true),
  deadLetter: optional(DEAD_LETTER),
  declare: DECLARE,
  ackWaitMs: milliseconds(30_000, 100),
  domain: optional(text('Pass domain: "hub"')),
  inboxPrefix: optional(text('Pass inboxPrefix: "_INBOX_orders"')),
} satisfies OptionSpecs<NatsSubscriberOptions>;

/** Takes messages from a durable pull consumer of JetStream. */
export function createNatsSubscriber(options: NatsSubscriberOptions): Subscriber {
  const read = readOptions("createNatsSubscriber", options, OPTIONS, { shared: "ordered: false" });
  const settings = subscriberSettings(read, "nats");
  const { connection, ordered, inboxPrefix = "_INBOX" } = read;
  return createSubscriber(async (consumer, handle) => {
    const prepared = await prepareConsumer(consumer, read);
    const consumption = new NatsConsumption({ ...prepared, connection, ordered, inboxPrefix, settings, handle });
    await consumption.start();
    return consumption;
  });
}
