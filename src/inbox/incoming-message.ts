import type { IncomingMessage } from "../core/message.ts";

/** A copy with fields of its own: a store may hand out messages that make theirs on demand, which a spread would miss. */
export function plain(message: IncomingMessage): IncomingMessage {
  return {
    id: message.id,
    position: message.position,
    stream: message.stream,
    type: message.type,
    key: message.key,
    aggregateType: message.aggregateType,
    aggregateId: message.aggregateId,
    body: message.body,
    headers: message.headers,
    createdAt: message.createdAt,
    routingKey: message.routingKey,
  };
}

/** Producers that know nothing of txbox often route by type. */
export function typeOf(message: IncomingMessage): string | undefined {
  return textOrNull(message.type) ?? textOrNull(message.routingKey) ?? undefined;
}

/** Foreign messages may carry anything: what an index or a text column cannot hold is left out. */
export function textOrNull(value: unknown, maxBytes = 1024): string | null {
  if (typeof value !== "string" || value === "" || value.includes("\0") || !value.isWellFormed()) return null;
  return Buffer.byteLength(value) > maxBytes ? null : value;
}
