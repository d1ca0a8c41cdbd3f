import type { PreparedMessage } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import type { Headers, Message } from "../../core/message.ts";
import type { Stored } from "../../lanes/lane-port.ts";
import type { Document } from "./mongodb-client.ts";
import { bodyOf, storedValue } from "./stored-value.ts";

/**
 * Where a document waits: `ready` to be claimed, `parked` behind a failure of its key (or after its own), `later` until
 * its time has come, `dying` until its dead letter is written. Nowhere while it is processed, done or dead.
 */
export type Waits = "ready" | "parked" | "later" | "dying";

/** What inboxes have stored has the ids of its senders, which may be in this collection too. */
const isReceived = (stream: string): boolean => stream.startsWith("inbox.");

/** The `_id` of a message. */
export function documentId(stream: string, id: string): string {
  return isReceived(stream) ? `${stream}/${id}` : id;
}

/** The document of a new message, in the words of the collection. */
export function documentOf(message: PreparedMessage, position: number, now: Date): Document {
  const due = message.deliverAt === null || message.deliverAt <= now;
  const { body } = message;
  const payload = typeof body === "string" ? storedValue(body) : { value: body, format: undefined };
  const headers = message.headers === "{}" ? undefined : storedValue(message.headers);
  return {
    _id: documentId(message.stream, message.id),
    ...(isReceived(message.stream) ? { message_id: message.id } : {}),
    stream: message.stream,
    event_type: message.type,
    aggregate_id: message.aggregateId,
    aggregate_type: message.aggregateType,
    key: message.key,
    payload: payload.value,
    ...(payload.format === undefined ? {} : { payload_format: payload.format }),
    ...(headers === undefined ? {} : { headers: headers.value }),
    correlation_id: message.correlationId ?? message.id,
    created_at: now,
    status: "new",
    waits: (due ? "ready" : "later") satisfies Waits,
    next_retry_at: message.deliverAt ?? now,
    attempts: 0,
    last_error: null,
    lease_owner: null,
    lease_until: null,
    // A whole number of 64 bits: the driver would store a number of this size as a double.
    position: BigInt(position),
    lane: message.lane,
    size: message.size,
  };
}

/** A document of the outbox as the relay hands it out. */
export class StoredMessage implements Stored {
  readonly document: Document;
  /** What the document was claimed with; undefined while it is held without a claim, as what comes by a change stream. */
  token: string | undefined;
  #headers: Headers | undefined;
  #body: string | Uint8Array | undefined;

  constructor(document: Document, token?: string) {
    this.document = document;
    this.token = token;
  }

  get ref(): unknown {
    return this.document["_id"];
  }
  get id(): string {
    return String(this.document["message_id"] ?? this.document["_id"]);
  }
  get position(): bigint {
    return BigInt(this.document["position"] as number);
  }
  get stream(): string {
    return this.document["stream"] as string;
  }
  get type(): string {
    return this.document["event_type"] as string;
  }
  get key(): string | null {
    return (this.document["key"] as string | null | undefined) ?? null;
  }
  get aggregateType(): string | null {
    return (this.document["aggregate_type"] as string | null | undefined) ?? null;
  }
  get aggregateId(): string | null {
    return (this.document["aggregate_id"] as string | null | undefined) ?? null;
  }
  get headers(): Headers {
    this.#headers ??= { ...headersOf(this.document), correlationId: this.#correlationId };
    return this.#headers;
  }
  get body(): string | Uint8Array {
    this.#body ??= bodyOf(this.document);
    return this.#body;
  }
  get createdAt(): Date {
    return this.document["created_at"] as Date;
  }
  get lane(): number {
    return this.document["lane"] as number;
  }
  /** Failed attempts since it was enqueued or last requeued. */
  get failures(): number {
    return this.attempts - this.earlierAttempts;
  }
  get attempts(): number {
    return numberOr(this.document["attempts"], 0);
  }
  /** Attempts of lives before it was requeued. */
  get earlierAttempts(): number {
    return numberOr(this.document["earlier_attempts"], 0);
  }
  get crashes(): number {
    return numberOr(this.document["crashes"], 0);
  }

  get #correlationId(): string {
    const own = this.document["correlation_id"];
    return typeof own === "string" ? own : this.id;
  }
}

/** The fields of a message but for its position. */
export function fieldsOf(document: Document): Omit<Message, "position"> {
  const { id, stream, type, key, aggregateType, aggregateId, headers, body, createdAt } = new StoredMessage(document);
  return { id, stream, type, key, aggregateType, aggregateId, headers, body, createdAt };
}

export function sizeOf(document: Document): number {
  return numberOr(document["size"], 1000);
}

function headersOf({ headers }: Document): Headers | undefined {
  if (typeof headers === "string") return JSON.parse(headers) as Headers;
  return headers as Headers | undefined;
}

/** Why a document cannot be a message, as after an edit by hand; undefined when it can. */
export function whyUnreadable(document: Document): string | undefined {
  const { stream, event_type, key, lane, position, payload, payload_format, headers, attempts, status, waits } =
    document;
  if (typeof stream !== "string" || stream === "") return `stream is ${shown(stream)}`;
  if (typeof event_type !== "string" || event_type === "") return `event_type is ${shown(event_type)}`;
  if (key != null && typeof key !== "string") return `key is ${shown(key)}`;
  if (!Number.isSafeInteger(position)) return `position is ${shown(position)}`;
  if (!isLane(lane)) return `lane is ${shown(lane)}`;
  if (payload === undefined) return "payload is missing";
  if (payload_format !== undefined && (payload_format !== "json" || !isJson(payload)))
    return "payload is not JSON text";
  if (headers != null && !isHeaders(headers)) return `headers are ${shown(headers)}`;
  if (!Number.isInteger(attempts)) return `attempts is ${shown(attempts)}`;
  // A failed message is parked: among the ready ones no claim or settle would ever match it.
  const possible = status === "new" || (status === "failed" && waits !== "ready");
  if (!possible) return `status is ${shown(status)}`;
  if (!(document["created_at"] instanceof Date)) return `created_at is ${shown(document["created_at"])}`;
  if (!(document["next_retry_at"] instanceof Date)) return `next_retry_at is ${shown(document["next_retry_at"])}`;
  return undefined;
}

export function isLane(lane: unknown): lane is number {
  return typeof lane === "number" && Number.isInteger(lane) && lane >= 0 && lane < LANES;
}

function isHeaders(headers: unknown): boolean {
  if (typeof headers !== "string") return typeof headers === "object" && !Array.isArray(headers);
  try {
    const parsed = JSON.parse(headers) as unknown;
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed);
  } catch {
    return false;
  }
}

function isJson(text: unknown): boolean {
  if (typeof text !== "string") return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "missing";
  return text.length > 80 ? `${text.slice(0, 80).toWellFormed()}…` : text;
}

export function numberOr(value: unknown, fallback: number): number {
  return typeof value === "number" && Number.isFinite(value) ? value : fallback;
}

/** A copy that can be shown whatever was stored: what no message can have is made into text. */
export function presentable(document: Document): Document {
  const text = (value: unknown) => (value == null ? null : typeof value === "string" ? value : shown(value));
  return {
    ...document,
    stream: text(document["stream"]) ?? "",
    event_type: text(document["event_type"]) ?? "",
    key: text(document["key"]),
    aggregate_id: text(document["aggregate_id"]),
    aggregate_type: text(document["aggregate_type"]),
    correlation_id: text(document["correlation_id"]),
    position: Number.isSafeInteger(document["position"]) ? document["position"] : 0,
    payload: document["payload"] ?? null,
    headers: isHeaders(document["headers"]) ? document["headers"] : {},
    created_at: document["created_at"] instanceof Date ? document["created_at"] : new Date(0),
  };
}
