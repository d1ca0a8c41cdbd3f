import { randomUUID } from "node:crypto";

/** What a message has for people to look it up by. */
export const SHAPES = ["plain", "traced"] as const;
export type Shape = (typeof SHAPES)[number];

export interface Shaped {
  key: string;
  aggregateId: string;
  correlationId: string | undefined;
}

/** As many orders and customers as a million messages are about. */
const THINGS = 100_000;

/** `plain`: the aggregate is the key. `traced`: another aggregate, and the id of the request that caused it. */
export function shaped(shape: Shape): Shaped {
  const key = `order-${any()}`;
  if (shape === "plain") return { key, aggregateId: key, correlationId: undefined };
  return { key, aggregateId: `customer-${any()}`, correlationId: `request-${randomUUID()}` };
}

/** The same in SQL, over a bigint column: [key, aggregate, correlation]. */
export function shapedSql(shape: Shape, n: string): [key: string, aggregate: string, correlation: string] {
  const thing = (kind: string, factor: number): string => `'${kind}-' || (${n} * ${factor} % ${THINGS})`;
  const key = thing("order", 7919);
  return shape === "plain"
    ? [key, key, "null"]
    : [key, thing("customer", 104_729), `'request-' || gen_random_uuid()::text`];
}

function any(): number {
  return Math.floor(Math.random() * THINGS);
}
