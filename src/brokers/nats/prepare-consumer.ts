import { TxboxError } from "../../core/errors.ts";
import { decodeText } from "../../adapter/index.ts";
import { JetStreamApi, type ConsumerInfo } from "./jetstream-api.ts";
import { declareStream, type JetStreamConfig } from "./nats-declaration.ts";
import { noDeadLetterStream } from "./nats-dead-letter.ts";
import { NATS_TRANSPORT } from "./nats-headers.ts";
import { matchesFilter, resourceName, subjectPart } from "./nats-subject.ts";
import type { NatsConnection } from "./nats-client.ts";

/** Settings of what `declare` creates, in JetStream's own words. */
export interface ConsumerDeclaration {
  stream?: JetStreamConfig;
  consumer?: JetStreamConfig;
  deadLetter?: JetStreamConfig;
}

/** What is used of the options of a subscriber. */
export interface ConsumerOptions {
  readonly connection: NatsConnection;
  readonly stream: string;
  readonly durable: string | undefined;
  readonly filter: string | undefined;
  readonly deadLetter: string | undefined;
  readonly declare: boolean | ConsumerDeclaration;
  readonly ackWaitMs: number;
  readonly prefetch: number;
  readonly domain: string | undefined;
}

export interface PreparedConsumer {
  readonly api: JetStreamApi;
  readonly consumer: string;
  readonly stream: string;
  readonly durable: string;
  readonly deadLetter: string;
  readonly ackWaitMs: number;
  /** What one request may ask for at most; 0: anything. */
  readonly maxRequestBytes: number;
}

/** Creates what may be created, and makes sure that all is there and fit. */
export async function prepareConsumer(consumer: string, options: ConsumerOptions): Promise<PreparedConsumer> {
  const { connection, stream, domain, declare } = options;
  const durable = options.durable ?? resourceName(consumer);
  const deadLetter = options.deadLetter ?? `${subjectPart(stream)}-dead`;
  const api = new JetStreamApi(connection, domain);
  const names = { api, consumer, stream, durable, deadLetter };
  if (declare !== false) await declareAll(names, declare === true ? {} : declare, options);

  const { config } = (await api.stream(stream)) ?? missing("stream", `There is no JetStream stream "${stream}"`);
  if (config.subjects?.some((subject) => matchesFilter(deadLetter, subject)) === true) {
    throw new TxboxError("invalid_option", `Dead letters to "${deadLetter}" would come back from "${stream}"`, {
      field: "deadLetter",
      fix: `Name a subject that the stream "${stream}" does not keep`,
    });
  }
  const info = await api.consumer(stream, durable);
  requireFitting(info ?? missing("durable", `The stream "${stream}" has no consumer "${durable}"`), durable);
  if ((await api.streamsOf(deadLetter)).length === 0) throw noDeadLetterStream(deadLetter);
  const { ack_wait = 30e9, max_bytes = 0 } = info?.config ?? {};
  return { ...names, ackWaitMs: ack_wait / 1e6, maxRequestBytes: max_bytes };
}

async function declareAll(
  { api, stream, durable, deadLetter }: Omit<PreparedConsumer, "ackWaitMs" | "maxRequestBytes">,
  more: ConsumerDeclaration,
  { filter, ackWaitMs, prefetch }: ConsumerOptions,
): Promise<void> {
  await declareStream(api, stream, [`${subjectPart(decodeText(stream, NATS_TRANSPORT))}.>`], more.stream);
  if ((await api.streamsOf(deadLetter)).length === 0) {
    await declareStream(api, resourceName(deadLetter), [deadLetter], more.deadLetter);
  }
  if ((await api.consumer(stream, durable)) !== undefined) return;
  await api.createConsumer(stream, durable, {
    ack_policy: "explicit",
    deliver_policy: "all",
    ack_wait: ackWaitMs * 1e6,
    max_deliver: -1,
    max_ack_pending: Math.max(1000, prefetch),
    ...(filter === undefined ? {} : { filter_subject: filter }),
    ...more.consumer,
  });
}

function requireFitting({ config }: ConsumerInfo, durable: string): void {
  const wrong = [
    [config.deliver_subject !== undefined, "pushes messages", "deliver_subject"],
    [config.ack_policy !== "explicit", `has the ack_policy "${config.ack_policy}"`, "ack_policy"],
    [(config.max_deliver ?? -1) > 0, "gives messages up by itself, without a dead letter", "max_deliver"],
    [config.headers_only === true, "delivers no bodies", "headers_only"],
  ].find(([found]) => found);
  if (wrong === undefined) return;
  throw new TxboxError("invalid_option", `The consumer "${durable}" ${String(wrong[1])} (${String(wrong[2])})`, {
    field: "durable",
    fix: "Name a pull consumer with ack_policy explicit and no max_deliver, or let declare: true create one",
  });
}

export function missing(field: string, message: string): never {
  throw new TxboxError("not_found", message, { field, fix: "Create it, or set declare: true" });
}
