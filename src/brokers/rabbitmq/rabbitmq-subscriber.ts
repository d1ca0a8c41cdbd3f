import type { Subscriber } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { SUBSCRIBER_OPTIONS, subscriberSettings, type SubscriberOptions } from "../shared/subscriber-options.ts";
import { requireConnection, type RabbitmqConnection } from "./rabbitmq-client.ts";
import { RabbitmqLink } from "./rabbitmq-link.ts";
import { RabbitmqSubscription } from "./rabbitmq-subscription.ts";
import { topologyOf, type RabbitmqDeadLetter, type RabbitmqDeclaration } from "./rabbitmq-topology.ts";

export interface RabbitmqSubscriberOptions extends SubscriberOptions {
  /** `await connect(url, { recovery: true })` of amqplib; yours to close. */
  connection: RabbitmqConnection;
  queue: string;
  /** Default: the queue `<queue>.dead`. */
  deadLetter?: RabbitmqDeadLetter;
  /** Creates the queue, the one for dead letters and its bindings. Default false. */
  declare?: boolean | RabbitmqDeclaration;
  /** Brought back by the deaths of this many subscribers, a message is put aside. Quorum queues count them. Default 20. */
  maxDeliveries?: number;
}

/** Takes messages of a queue; each is acknowledged when it is done, and what cannot be done goes to the dead letters. */
export function createRabbitmqSubscriber(options: RabbitmqSubscriberOptions): Subscriber {
  const of = "createRabbitmqSubscriber";
  requireConnection(of, options?.connection);
  rejectUnknownOptions(of, options, [
    "connection",
    "queue",
    "deadLetter",
    "declare",
    "maxDeliveries",
    ...SUBSCRIBER_OPTIONS,
  ]);
  const { connection, queue, deadLetter, declare, maxDeliveries = 20 } = options;
  if (typeof queue !== "string" || queue === "" || Buffer.byteLength(queue) > 255) {
    throw new TxboxError("invalid_option", `${of} needs the name of a queue`, {
      field: "queue",
      fix: 'Pass queue: "payments"',
    });
  }
  requireInteger(of, "maxDeliveries", maxDeliveries, 1);
  const settings = subscriberSettings(of, options);
  const topology = topologyOf(of, queue, deadLetter, declare);
  const link = RabbitmqLink.of(connection);
  let subscription: RabbitmqSubscription | undefined;
  return {
    async start(consumer, handle) {
      if (subscription !== undefined) {
        throw new TxboxError("invalid_option", `This subscriber to "${queue}" has been started already`, {
          fix: "Create another one, or stop it first",
        });
      }
      subscription = new RabbitmqSubscription({ link, topology, settings, maxDeliveries, consumer, handle });
      try {
        await subscription.start();
      } catch (error) {
        subscription = undefined;
        throw error;
      }
    },
    async stop() {
      const stopping = subscription;
      subscription = undefined;
      await stopping?.stop();
    },
  };
}
