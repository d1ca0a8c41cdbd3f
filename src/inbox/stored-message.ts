import { createHash } from "node:crypto";
import { decodePayload } from "../core/codec.ts";
import type { PreparedMessage } from "../core/contracts.ts";
import { laneOf } from "../core/lane.ts";
import type { Headers, IncomingMessage } from "../core/message.ts";
import { plainIncoming } from "../core/plain-message.ts";
import { textOrNull } from "../core/text-or-null.ts";

/** The stream of a consumer's own log, when it stores before it handles. */
export function storedStream(consumer: string): string {
  return `inbox.${consumer}`;
}

interface Origin {
  stream?: string | undefined;
  source?: string | undefined;
  position?: string | undefined;
  createdAt?: string | undefined;
  /** A key that the log could not hold as it was. */
  key?: string | undefined;
}

const ORIGIN = "txboxOrigin";

/** A received message as one to be written into the receiver's own log: the same, but for stream and position. */
export function toStored(consumer: string, id: string, type: string, message: IncomingMessage): PreparedMessage {
  const { correlationId, ...rest } = message.headers;
  const key = storableKey(message.key);
  const origin: Origin = {
    stream: message.stream,
    source: message.source,
    position: message.position?.toString(),
    createdAt: message.createdAt?.toISOString(),
    key: key === message.key ? undefined : readableKey(message.key),
  };
  const headers = JSON.stringify({ ...rest, [ORIGIN]: origin });
  const body = readable(message);
  return {
    id,
    // The receipt, written in the same transaction, is what keeps a repeat out.
    idChosen: false,
    stream: storedStream(consumer),
    type,
    key,
    lane: laneOf(key),
    aggregateType: textOrNull(message.aggregateType),
    aggregateId: textOrNull(message.aggregateId),
    correlationId: textOrNull(correlationId),
    body,
    headers,
    size: Buffer.byteLength(body) + Buffer.byteLength(headers),
    deliverAt: null,
  };
}

/** The other way: what the handler sees is the message as it was sent. */
export function fromStored(message: IncomingMessage): IncomingMessage {
  const { [ORIGIN]: origin, ...headers } = message.headers;
  const { stream, source, position, createdAt, key = message.key } = (origin ?? {}) as Origin;
  return {
    ...plainIncoming(message),
    key,
    stream,
    ...(source === undefined ? {} : { source }),
    position: position === undefined ? undefined : BigInt(position),
    createdAt: createdAt === undefined ? message.createdAt : new Date(createdAt),
    headers,
  };
}

/** A key that no index holds is replaced by its hash: messages of one key keep their order. */
function storableKey(key: unknown): string | null {
  if (typeof key !== "string" || key === "") return null;
  return textOrNull(key) ?? `sha256:${createHash("sha256").update(key, "utf16le").digest("hex")}`;
}

function readableKey(key: unknown): string | undefined {
  return textOrNull(key, Number.POSITIVE_INFINITY) ?? undefined;
}

/** Brokers deliver JSON as bytes; as text people can read it in the table. What is not valid fails here, not later. */
function readable({ body, headers }: IncomingMessage): string | Uint8Array {
  const payload = decodePayload(body, headers.contentType);
  return typeof body === "string" || payload instanceof Uint8Array || isText(headers)
    ? body
    : Buffer.from(body).toString("utf8");
}

function isText({ contentType }: Headers): boolean {
  return contentType !== undefined && !contentType.includes("json");
}
