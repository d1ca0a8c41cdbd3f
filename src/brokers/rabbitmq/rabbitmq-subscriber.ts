import {
  createSubscriber,
  integer,
  invalidOption,
  readOptions,
  required,
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  type OptionSpec,
  type OptionSpecs,
  type SubscriberOptions,
} from "../../adapter/index.ts";
import type { Subscriber } from "../../core/contracts.ts";
import { requireConnection, type RabbitmqConnection } from "./rabbitmq-client.ts";
import { RabbitmqLink } from "./rabbitmq-link.ts";
import { RabbitmqSubscription } from "./rabbitmq-subscription.ts";
import { topologyOf, type RabbitmqDeadLetter, type RabbitmqDeclaration } from "./rabbitmq-topology.ts";

export interface RabbitmqSubscriberOptions extends SubscriberOptions {
  /** `await connect(url, { recovery: true })` of amqplib. It stays yours to close. */
  connection: RabbitmqConnection;
  queue: string;
  /** Default: the queue `<queue>.dead`. */
  deadLetter?: RabbitmqDeadLetter;
  /** Creates the queue, the one for dead letters and its bindings. Default false. */
  declare?: boolean | RabbitmqDeclaration;
  /** Brought back by the deaths of this many subscribers, a message is put aside. Quorum queues count them. Default 20. */
  maxDeliveries?: number;
}

const OF = "createRabbitmqSubscriber";

const QUEUE: OptionSpec<string> = {
  read(of, name, value) {
    if (typeof value === "string" && value !== "" && Buffer.byteLength(value) <= 255) return value;
    throw invalidOption(of, name, "it needs the name of a queue", 'Pass queue: "payments"');
  },
};

/** Checked together, by `topologyOf`. */
const asGiven = <T>(): OptionSpec<T | undefined> => ({ read: (_, __, value) => value as T | undefined });

const OPTIONS = {
  ...SUBSCRIBER_OPTIONS,
  connection: required(requireConnection),
  queue: QUEUE,
  deadLetter: asGiven<RabbitmqDeadLetter>(),
  declare: asGiven<boolean | RabbitmqDeclaration>(),
  maxDeliveries: integer(1, Number.MAX_SAFE_INTEGER, 20),
} satisfies OptionSpecs<RabbitmqSubscriberOptions>;

/** Takes messages of a queue; each is acknowledged when it is done, and what cannot be done goes to the dead letters. */
export function createRabbitmqSubscriber(options: RabbitmqSubscriberOptions): Subscriber {
  const read = readOptions(OF, options, OPTIONS);
  const { connection, queue, deadLetter, declare, maxDeliveries } = read;
  const settings = subscriberSettings(read, "rabbitmq");
  const topology = topologyOf(OF, queue, deadLetter, declare);
  const link = RabbitmqLink.of(connection);
  return createSubscriber(async (consumer, handle, stopping) => {
    const subscription = new RabbitmqSubscription({ link, topology, settings, maxDeliveries, consumer, handle });
    // It would wait without end for a server that is out.
    stopping.addEventListener("abort", () => subscription.cancel());
    await subscription.start();
    return subscription;
  });
}
