import {
  createPublisher,
  ENVELOPE_OPTIONS,
  EncodedAhead,
  integer,
  invalidOption,
  milliseconds,
  optional,
  readOptions,
  required,
  text,
  type Batch,
  type EnvelopeOptions,
  type OptionSpec,
  type OptionSpecs,
  type SettingsOf,
} from "../../adapter/index.ts";
import { NOT_TRIED } from "../../core/batch-results.ts";
import type { Publisher, PublishResult } from "../../core/contracts.ts";
import { errorCode, type TxboxError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { requireFunction } from "../../core/options.ts";
import { AckInbox } from "./ack-inbox.ts";
import { JetStreamApi } from "./jetstream-api.ts";
import { NatsBatch, type NatsBatchTools } from "./nats-batch.ts";
import { requireConnection, type NatsConnection } from "./nats-client.ts";
import { declareStream, type JetStreamConfig } from "./nats-declaration.ts";
import { encodeMessage, type EncodedMessage } from "./nats-envelope.ts";
import { NatsLink } from "./nats-link.ts";
import { MAX_PARTITIONS, resourceName, subjectOf, subjectPart } from "./nats-subject.ts";
import { routeOut, whyNobody } from "./publish-answer.ts";
import { StreamLinks } from "./stream-links.ts";

export interface NatsPublisherOptions extends EnvelopeOptions {
  /** From `connect()` of @nats-io/transport-node, with `maxReconnectAttempts: -1`. It stays yours to close. */
  connection: NatsConnection;
  /** Default: `orders` and `order_created` go to `orders.order_created`. */
  subject?: (message: Message) => string;
  /** Spread keys over this many subjects, `orders.<partition>.order_created`, so that each can have its own consumer. */
  partitions?: number;
  /** The JetStream stream that must keep the message; the server checks it. Default: any, or with `declare` the stream's name. */
  streamName?: string | ((message: Message) => string);
  /** Create missing streams, each with the subjects `<stream>.>`; more settings in JetStream's own words. */
  declare?: boolean | JetStreamConfig;
  /** Give a batch up when nothing was confirmed for so long. Default 5 s. */
  timeoutMs?: number;
  /** JetStream domain. */
  domain?: string;
  /** As in the connection's options, if it has one. Default `_INBOX`. */
  inboxPrefix?: string;
}

const OF = "createNatsPublisher";

const SUBJECT: OptionSpec<(message: Message) => string> = {
  read(of, name, value) {
    requireFunction(of, name, value, "Pass (message) => `orders.${message.type}`");
    return value as (message: Message) => string;
  },
};

const STREAM_NAME: OptionSpec<string | ((message: Message) => string)> = {
  read(of, name, value) {
    if (typeof value === "function") return value as (message: Message) => string;
    if (typeof value === "string" && value !== "" && resourceName(value) === value) return value;
    const what = `${JSON.stringify(value)} cannot name a stream`;
    throw invalidOption(of, name, what, "Leave out dots, wildcards and spaces");
  },
};

const DECLARE: OptionSpec<boolean | JetStreamConfig> = {
  read(of, name, value = false) {
    if (typeof value === "boolean" || (typeof value === "object" && value !== null)) return value as JetStreamConfig;
    throw invalidOption(of, name, "it must be true, false or settings of a stream", "Set declare: true");
  },
};

const OPTIONS = {
  ...ENVELOPE_OPTIONS,
  connection: required(requireConnection),
  subject: optional(SUBJECT),
  partitions: optional(integer(1, MAX_PARTITIONS, 1)),
  streamName: optional(STREAM_NAME),
  declare: DECLARE,
  timeoutMs: milliseconds(5000, 10),
  domain: optional(text('Pass domain: "hub"')),
  inboxPrefix: optional(text('Pass inboxPrefix: "_INBOX_orders"')),
} satisfies OptionSpecs<NatsPublisherOptions>;

type Settings = SettingsOf<typeof OPTIONS>;

/** Publishes to JetStream: every message is confirmed by the stream that keeps it, and known to it by its id. */
export function createNatsPublisher(options: NatsPublisherOptions): Publisher {
  const settings = readOptions(OF, options, OPTIONS, { ackTimeoutMs: "timeoutMs" });
  requireAgreement(settings);
  const sender = new NatsSender(settings);
  return createPublisher({
    system: "nats",
    keepsKeyOrder: true,
    publish: (batch) => sender.publish(batch),
    prepare: (messages) => sender.prepare(messages),
    close: () => sender.close(),
  });
}

class NatsSender {
  readonly #settings: Settings;
  readonly #api: JetStreamApi;
  readonly #link: NatsLink;
  readonly #tools: NatsBatchTools;
  readonly #ahead: EncodedAhead<EncodedMessage>;
  readonly #underWay = new Set<NatsBatch>();
  readonly #declared = new Map<string, Promise<void>>();
  #unfit: Error | undefined;

  constructor(settings: Settings) {
    const { connection, partitions, streamName, declare, envelope, source, timeoutMs } = settings;
    this.#settings = settings;
    this.#api = new JetStreamApi(connection, settings.domain);
    this.#link = new NatsLink(connection, {
      down: (error) => this.#underWay.forEach((batch) => batch.giveUp(error)),
      denied: (error) => this.#denied(error),
    });
    const expected = streamName ?? (declare === false ? undefined : ({ stream }: Message) => resourceName(stream));
    const how = {
      connection,
      subject: settings.subject ?? ((message: Message) => subjectOf(message, partitions)),
      streamName: typeof expected === "string" ? () => expected : expected,
      envelope,
      source,
    };
    this.#ahead = new EncodedAhead((message) => encodeMessage(message, how));
    this.#tools = {
      connection,
      inbox: new AckInbox(connection, settings.inboxPrefix ?? "_INBOX"),
      links: new StreamLinks(),
      timeoutMs,
      encoded: (messages) => this.#ahead.of(messages),
      unfit: (error) => (this.#unfit = error),
      nobody: (subject) => this.#nobody(subject),
    };
  }

  prepare(messages: readonly Message[]): void {
    this.#ahead.prepare(messages);
  }

  close(): void {
    this.#link.end();
    this.#tools.inbox.end();
  }

  async publish(batch: Batch): Promise<PublishResult[]> {
    if (this.#unfit !== undefined) throw this.#unfit;
    const { messages } = batch;
    const refused = await this.#declare(messages);
    if (this.#link.down !== undefined) throw this.#link.down;
    if (!batch.mayBegin()) return messages.map(() => NOT_TRIED);
    const declared = refused.size === 0 ? messages : messages.filter(({ stream }) => !refused.has(stream));
    const sending = new NatsBatch({ ...batch, messages: declared }, this.#tools);
    this.#underWay.add(sending);
    try {
      const running = sending.run();
      setImmediate(() => this.#ahead.whileWaiting());
      const results = (await running).values();
      return messages.map(({ stream }) => refused.get(stream) ?? results.next().value!);
    } finally {
      this.#underWay.delete(sending);
    }
  }

  /** What to say of the messages of a stream that could not be declared. */
  async #declare(messages: readonly Message[]): Promise<Map<string, PublishResult>> {
    const refused = new Map<string, PublishResult>();
    if (this.#settings.declare === false) return refused;
    for (const message of messages) {
      const { stream } = message;
      if (refused.has(stream)) continue;
      if (this.#declared.get(stream) === undefined) {
        if (this.#link.down !== undefined) throw this.#link.down;
        this.#declared.set(stream, this.#declareFor(message));
      }
      try {
        await this.#declared.get(stream);
      } catch (error) {
        this.#declared.delete(stream);
        // JetStream's word about this stream; where it has none, nothing is known of any.
        if (errorCode(error) !== "invalid_option") throw error;
        refused.set(stream, routeOut(stream, error as TxboxError));
      }
    }
    return refused;
  }

  #declareFor(message: Message): Promise<void> {
    const { streamName, declare } = this.#settings;
    const more = typeof declare === "object" ? declare : {};
    const name = typeof streamName === "function" ? streamName(message) : (streamName ?? resourceName(message.stream));
    return declareStream(this.#api, name, [`${subjectPart(message.stream)}.>`], more);
  }

  #nobody(subject: string): Promise<PublishResult> {
    // What was declared is declared anew by the next try.
    const before = this.#declared.size > 0 || this.#tools.links.streamOf(subject) !== undefined;
    this.#declared.clear();
    return whyNobody(this.#api, subject, before);
  }

  #denied({ message, subject = "" }: Error & { subject?: string }): void {
    const ours = subject.startsWith(this.#tools.inbox.subject);
    const error = new UnavailableError(`NATS does not allow it: ${message}`, {
      field: ours ? "inboxPrefix" : "subject",
      fix: `Give this user the right to ${ours ? "subscribe" : "publish"} to ${subject}`,
    });
    for (const batch of this.#underWay) {
      if (ours) batch.giveUp(error);
      else batch.denied(subject, error);
    }
  }
}

function requireAgreement({ subject, partitions, declare }: Settings): void {
  if (subject === undefined) return;
  if (partitions !== undefined) {
    const fix = "Put the partition into your own subject()";
    throw invalidOption(OF, "partitions", "subject and partitions are both set", fix);
  }
  const subjects = typeof declare === "object" ? declare["subjects"] : undefined;
  if (declare !== false && subjects === undefined) {
    const fix = "Set declare: { subjects: […] }";
    throw invalidOption(OF, "declare", "it cannot be known which subjects subject() gives", fix);
  }
}
