import type { Publisher, PublishResult } from "../../core/contracts.ts";
import { errorCode, TxboxError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { requireEnvelope, type EnvelopeFormat } from "../shared/envelope.ts";
import { AckInbox } from "./ack-inbox.ts";
import { JetStreamApi } from "./jetstream-api.ts";
import { requireConnection, type NatsConnection } from "./nats-client.ts";
import { declareStream, type JetStreamConfig } from "./nats-declaration.ts";
import { NatsLink } from "./nats-link.ts";
import { MAX_PARTITIONS, resourceName, subjectOf, subjectPart } from "./nats-subject.ts";
import { Publication, type PublicationTools } from "./publication.ts";
import { routeOut, whyNobody } from "./publish-answer.ts";
import { sealParcel } from "./seal-parcel.ts";
import { StreamLinks } from "./stream-links.ts";

export interface NatsPublisherOptions {
  /** From `connect()` of @nats-io/transport-node, with `maxReconnectAttempts: -1`. */
  connection: NatsConnection;
  /** Default: `orders` and `order_created` go to `orders.order_created`. */
  subject?: (message: Message) => string;
  /** Spread keys over this many subjects, `orders.<partition>.order_created`, so that each can have its own consumer. */
  partitions?: number;
  /** The JetStream stream that must keep the message; the server checks it. Default: any, or with `declare` the stream's name. */
  streamName?: string | ((message: Message) => string);
  /** Create missing streams, each with the subjects `<stream>.>`; more settings in JetStream's own words. */
  declare?: boolean | JetStreamConfig;
  envelope?: EnvelopeFormat;
  /** `source` of CloudEvents. Default: `/<stream>`. */
  source?: string;
  /** Give a batch up when nothing was confirmed for so long. Default 5 s. */
  ackTimeoutMs?: number;
  /** JetStream domain. */
  domain?: string;
  /** As in the connection's options, if it has one. Default `_INBOX`. */
  inboxPrefix?: string;
}

const OF = "createNatsPublisher";

/** Publishes to JetStream: every message is confirmed by the stream that keeps it, and known to it by its id. */
export function createNatsPublisher(options: NatsPublisherOptions): Publisher {
  checkOptions(options);
  return new NatsPublisher(options);
}

class NatsPublisher implements Publisher {
  readonly keepsKeyOrder = true;
  readonly #options: NatsPublisherOptions;
  readonly #api: JetStreamApi;
  readonly #link: NatsLink;
  readonly #tools: PublicationTools;
  readonly #underWay = new Set<Publication>();
  readonly #inHand = new Set<Promise<unknown>>();
  readonly #declared = new Map<string, Promise<void>>();
  #closed = false;
  #unfit: Error | undefined;

  constructor(options: NatsPublisherOptions) {
    const { connection, partitions, streamName, declare = false, envelope = "native", source } = options;
    this.#options = options;
    this.#api = new JetStreamApi(connection, options.domain);
    this.#link = new NatsLink(connection, {
      down: (error) => this.#underWay.forEach((publication) => publication.giveUp(error)),
      denied: (error) => this.#denied(error),
    });
    const expected = streamName ?? (declare === false ? undefined : ({ stream }: Message) => resourceName(stream));
    const sealing = {
      connection,
      subject: options.subject ?? ((message: Message) => subjectOf(message, partitions)),
      streamName: typeof expected === "string" ? () => expected : expected,
      envelope,
      source,
    };
    this.#tools = {
      connection,
      inbox: new AckInbox(connection, options.inboxPrefix ?? "_INBOX"),
      links: new StreamLinks(),
      ackTimeoutMs: options.ackTimeoutMs ?? 5000,
      seal: (message) => sealParcel(message, sealing),
      unfit: (error) => (this.#unfit = error),
      nobody: (subject) => this.#nobody(subject),
    };
  }

  async publish(messages: readonly Message[], signal: AbortSignal): Promise<readonly PublishResult[]> {
    if (messages.length === 0) return [];
    if (this.#closed) throw new UnavailableError("This NATS publisher is closed");
    if (this.#unfit !== undefined) throw this.#unfit;
    const publishing = this.#publish(messages, signal);
    this.#inHand.add(publishing);
    try {
      return await publishing;
    } finally {
      this.#inHand.delete(publishing);
    }
  }

  /** Waits for what is in flight; the connection stays as it is. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.allSettled(this.#inHand);
    this.#link.end();
    this.#tools.inbox.end();
  }

  async #publish(messages: readonly Message[], signal: AbortSignal): Promise<PublishResult[]> {
    const refused = await this.#declare(messages);
    if (this.#link.down !== undefined) throw this.#link.down;
    if (signal.aborted) return messages.map(() => ({ status: "unavailable" }));
    const declared = refused.size === 0 ? messages : messages.filter(({ stream }) => !refused.has(stream));
    const publication = new Publication(declared, this.#tools);
    this.#underWay.add(publication);
    try {
      const results = (await publication.run(signal)).values();
      return messages.map(({ stream }) => refused.get(stream) ?? results.next().value!);
    } finally {
      this.#underWay.delete(publication);
    }
  }

  /** What to say of the messages of a stream that could not be declared. */
  async #declare(messages: readonly Message[]): Promise<Map<string, PublishResult>> {
    const refused = new Map<string, PublishResult>();
    if (this.#options.declare === undefined || this.#options.declare === false) return refused;
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
    const { streamName, declare } = this.#options;
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
    for (const publication of this.#underWay) {
      if (ours) publication.giveUp(error);
      else publication.denied(subject, error);
    }
  }
}

const OPTIONS: readonly (keyof NatsPublisherOptions)[] = [
  "connection",
  "subject",
  "partitions",
  "streamName",
  "declare",
  "envelope",
  "source",
  "ackTimeoutMs",
  "domain",
  "inboxPrefix",
];

function checkOptions(options: NatsPublisherOptions): void {
  requireConnection(OF, options?.connection);
  rejectUnknownOptions(OF, options, OPTIONS);
  const { subject, partitions = 1, streamName, declare, envelope = "native", ackTimeoutMs = 5000 } = options;
  requireInteger(OF, "partitions", partitions, 1, MAX_PARTITIONS);
  requireInteger(OF, "ackTimeoutMs", ackTimeoutMs, 10, 2 ** 31 - 1);
  requireEnvelope(OF, envelope);
  if (streamName !== undefined && typeof streamName !== "function" && !isResourceName(streamName)) {
    throw invalid("streamName", `"${streamName}" cannot name a stream`, "Leave out dots, wildcards and spaces");
  }
  if (subject !== undefined && options.partitions !== undefined) {
    throw invalid("partitions", "subject and partitions are both set", "Put the partition into your own subject()");
  }
  const subjects = typeof declare === "object" ? declare["subjects"] : undefined;
  if (subject !== undefined && declare !== undefined && declare !== false && subjects === undefined) {
    throw invalid("declare", "it cannot be known which subjects subject() gives", "Set declare: { subjects: […] }");
  }
}

function isResourceName(value: string): boolean {
  return value !== "" && resourceName(value) === value;
}

function invalid(field: string, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${OF}: ${message}`, { field, fix });
}
