import { createHash } from "node:crypto";
import type { IncomingMessage } from "../core/message.ts";

const MAX_ID_BYTES = 200;

/**
 * What makes two deliveries the same message: the broker's id, else an idempotency key, else the place in its
 * aggregate's history, else its content. Equal messages without any of these count as one.
 */
export function messageIdOf(message: IncomingMessage): string {
  const { id, headers, aggregateType, aggregateId, position } = message;
  if (isGiven(id)) return storable(id);
  const { idempotencyKey } = headers;
  if (isGiven(idempotencyKey)) return storable(idempotencyKey);
  if (isGiven(aggregateType) && isGiven(aggregateId) && isGiven(message.type) && position !== undefined) {
    return storable(`${aggregateType}:${aggregateId}:${message.type}:${position}`);
  }
  const routingKey = message.routingKey ?? message.type ?? "";
  return sha256(`${routingKey}:`, message.body);
}

function isGiven(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/** A foreign id may be longer than an index entry, or hold what no database stores. */
function storable(id: string): string {
  if (Buffer.byteLength(id) <= MAX_ID_BYTES && !id.includes("\0") && id.isWellFormed()) return id;
  return sha256(id);
}

function sha256(...parts: (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
}
