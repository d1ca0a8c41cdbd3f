import { uuidv7 } from "../../src/core/uuid.ts";
import type { Message } from "../../src/index.ts";
import { order } from "./payload.ts";

export const STREAM = "orders";
export const TYPE = "order_created" as const;
const KEYS = 1000;

/** One of 1,000 keys, as if drawn at random: in a batch of 1,000, most messages share their key with another. */
export function keyOf(seq: number): string {
  const mixed = Math.imul(seq ^ (seq >>> 15), 0x2c1b3c6d);
  return `order-${((mixed ^ (mixed >>> 12)) >>> 0) % KEYS}`;
}

export function headersOf(seq: number): { correlationId: string; schemaVersion: number } {
  return { correlationId: `request-${seq}`, schemaVersion: 1 };
}

/** Messages as a relay hands them to its publisher; each time with new ids. */
export function createMessages(count: number): Message[] {
  return Array.from({ length: count }, (_, seq) => ({
    id: uuidv7(),
    stream: STREAM,
    type: TYPE,
    key: keyOf(seq),
    aggregateType: "order",
    aggregateId: keyOf(seq),
    headers: headersOf(seq),
    body: JSON.stringify(order(seq)),
    position: BigInt(seq + 1),
    createdAt: new Date(),
  }));
}
