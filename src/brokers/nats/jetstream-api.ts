import { TxboxError, UnavailableError } from "../../core/errors.ts";
import type { NatsConnection, NatsMessage } from "./nats-client.ts";

/** What JetStream answers when it refuses: the `err_code` tells the reasons apart. */
export interface JetStreamError {
  readonly code: number;
  readonly err_code?: number;
  readonly description: string;
}

export const STREAM_NOT_FOUND = 10_059;
export const CONSUMER_NOT_FOUND = 10_014;
const STREAM_NAME_IN_USE = 10_058;
const UNREADABLE: JetStreamError = { code: 500, description: "an answer that cannot be read" };
const NOT_ENABLED: ReadonlySet<number | undefined> = new Set([10_039, 10_076]);

export interface StreamInfo {
  readonly config: { readonly name: string; readonly subjects?: readonly string[] };
}

export interface ConsumerConfig {
  readonly ack_policy: string;
  readonly ack_wait?: number;
  readonly max_deliver?: number;
  readonly max_ack_pending?: number;
  readonly max_bytes?: number;
  readonly deliver_subject?: string;
  readonly headers_only?: boolean;
}

export interface ConsumerInfo {
  readonly created: string;
  readonly config: ConsumerConfig;
  readonly delivered: SequencePair;
  readonly ack_floor: SequencePair;
  readonly num_ack_pending: number;
}

export interface SequencePair {
  readonly consumer_seq: number;
  readonly stream_seq: number;
}

/** The part of JetStream's request API that is needed here. */
export class JetStreamApi {
  readonly #connection: NatsConnection;
  readonly #prefix: string;
  readonly #timeoutMs: number;

  constructor(connection: NatsConnection, domain: string | undefined, timeoutMs = 5000) {
    this.#connection = connection;
    this.#prefix = domain === undefined ? "$JS.API" : `$JS.${domain}.API`;
    this.#timeoutMs = timeoutMs;
  }

  subject(operation: string): string {
    return `${this.#prefix}.${operation}`;
  }

  /** Undefined when there is no such stream. */
  async stream(name: string): Promise<StreamInfo | undefined> {
    return this.#ask<StreamInfo>(`STREAM.INFO.${name}`, {}, STREAM_NOT_FOUND);
  }

  /** Makes a stream; one of that name that is there already stays as it is. */
  async createStream(config: Readonly<Record<string, unknown>> & { name: string }): Promise<void> {
    if ((await this.stream(config.name)) !== undefined) return;
    await this.#ask(`STREAM.CREATE.${config.name}`, config, STREAM_NAME_IN_USE);
  }

  /** Names of the streams that keep what is published to the subject. */
  async streamsOf(subject: string): Promise<readonly string[]> {
    const found = await this.#ask<{ streams?: readonly string[] | null }>("STREAM.NAMES", { subject });
    return found?.streams ?? [];
  }

  async consumer(stream: string, name: string): Promise<ConsumerInfo | undefined> {
    return this.#ask<ConsumerInfo>(`CONSUMER.INFO.${stream}.${name}`, {}, CONSUMER_NOT_FOUND, STREAM_NOT_FOUND);
  }

  async createConsumer(stream: string, name: string, config: Readonly<Record<string, unknown>>): Promise<void> {
    const operation = `CONSUMER.DURABLE.CREATE.${stream}.${name}`;
    await this.#ask(operation, { stream_name: stream, config: { ...config, durable_name: name } });
  }

  async #ask<T>(operation: string, body: object, ...absent: number[]): Promise<T | undefined> {
    const answer = await this.#request(this.subject(operation), JSON.stringify(body));
    const { error, ...rest } = parsed(answer) ?? { error: UNREADABLE };
    if (error === undefined) return rest as T;
    if (error.err_code !== undefined && absent.includes(error.err_code)) return undefined;
    throw refusal(operation, error);
  }

  async #request(subject: string, body: string): Promise<NatsMessage> {
    try {
      return await this.#connection.request(subject, body, { timeout: this.#timeoutMs });
    } catch (cause) {
      throw new UnavailableError(`JetStream did not answer ${subject}: ${(cause as Error).message}`, {
        fix: "Start nats-server with JetStream (-js), and allow this user to publish to $JS.API.>",
        cause,
      });
    }
  }
}

/** Undefined for what is no object in JSON. */
function parsed({ data }: NatsMessage): { readonly error?: JetStreamError } | undefined {
  try {
    const text = Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString();
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** What a stream says of a message that was published to it. */
export type PublishAnswer = { readonly stream: string } | { readonly stream: string; readonly error: JetStreamError };

/** Undefined when the answer is not from a stream. */
export function publishAnswer(message: NatsMessage): PublishAnswer | undefined {
  const { error, stream, seq }: { error?: JetStreamError; stream?: unknown; seq?: unknown } = parsed(message) ?? {};
  if (typeof error?.code === "number") return { stream: typeof stream === "string" ? stream : "", error };
  return typeof stream === "string" && typeof seq === "number" ? { stream } : undefined;
}

function refusal(operation: string, error: JetStreamError): TxboxError {
  const text = `JetStream refused ${operation}: ${error.description} (${error.err_code ?? error.code})`;
  if (error.code >= 500 || NOT_ENABLED.has(error.err_code)) return new UnavailableError(text);
  return new TxboxError("invalid_option", text, { field: "declare", fix: "Change what is asked for, or the server" });
}
