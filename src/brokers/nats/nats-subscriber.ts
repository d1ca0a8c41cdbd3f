import type { Handle, Subscriber } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { shownValue } from "../../core/value-kind.ts";
import { SUBSCRIBER_OPTIONS, subscriberSettings, type SubscriberOptions } from "../shared/subscriber-options.ts";
import { requireConnection, type NatsConnection } from "./nats-client.ts";
import { NatsConsumption } from "./nats-consumption.ts";
import { prepareConsumer, type ConsumerDeclaration } from "./prepare-consumer.ts";
import { isSubject, resourceName } from "./nats-subject.ts";

export interface NatsSubscriberOptions extends SubscriberOptions {
  /** From `connect()` of @nats-io/transport-node, with `maxReconnectAttempts: -1`. */
  connection: NatsConnection;
  /** The JetStream stream. */
  stream: string;
  /** The durable pull consumer. Default: the consumer's name. */
  durable?: string;
  /** Which subjects of the stream, for a consumer that `declare` creates: `orders.*.created`. Default: all. */
  filter?: string;
  /** Several processes take from this consumer at once. No order of keys then; without it, one process at a time. */
  shared?: boolean;
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

const OF = "createNatsSubscriber";

/** Takes messages from a durable pull consumer of JetStream. */
export function createNatsSubscriber(options: NatsSubscriberOptions): Subscriber {
  checkOptions(options);
  const settings = subscriberSettings(OF, options);
  const { connection, stream, shared = false, inboxPrefix = "_INBOX" } = options;
  let consumption: Promise<NatsConsumption> | undefined;
  return {
    async start(consumer: string, handle: Handle) {
      if (consumption !== undefined) {
        throw new TxboxError("invalid_option", `This subscriber to "${stream}" is running already`, {
          fix: `Create another one for ${consumer}`,
        });
      }
      const starting = (async () => {
        const prepared = await prepareConsumer(consumer, options, settings);
        const begun = new NatsConsumption({ ...prepared, connection, shared, inboxPrefix, settings, handle });
        await begun.start();
        return begun;
      })();
      consumption = starting;
      try {
        await starting;
      } catch (error) {
        consumption = undefined;
        throw error;
      }
    },
    async stop() {
      const running = consumption;
      await (await running?.catch(() => undefined))?.stop();
      if (consumption === running) consumption = undefined;
    },
  };
}

const OPTIONS: readonly (keyof NatsSubscriberOptions)[] = [
  "connection",
  "stream",
  "durable",
  "filter",
  "shared",
  "deadLetter",
  "declare",
  "ackWaitMs",
  "domain",
  "inboxPrefix",
  ...SUBSCRIBER_OPTIONS,
];

function checkOptions(options: NatsSubscriberOptions): void {
  requireConnection(OF, options?.connection);
  rejectUnknownOptions(OF, options, OPTIONS);
  requireInteger(OF, "ackWaitMs", options.ackWaitMs ?? 30_000, 100, 2 ** 31 - 1);
  for (const field of ["stream", "durable"] as const) {
    const name = options[field];
    if (name === undefined && field === "durable") continue;
    if (typeof name === "string" && name !== "" && resourceName(name) === name) continue;
    throw invalid(field, `${shownValue(name)} cannot name a ${field === "stream" ? "stream" : "consumer"}`);
  }
  if (options.deadLetter !== undefined && !isSubject(options.deadLetter)) {
    throw invalid("deadLetter", `${shownValue(options.deadLetter)} is no subject to publish to`);
  }
}

function invalid(field: string, message: string): TxboxError {
  const fix = `Set ${field} to a name without wildcards, spaces${field === "deadLetter" ? "" : ", slashes and dots"}`;
  return new TxboxError("invalid_option", `${OF}: ${message}`, { field, fix });
}
