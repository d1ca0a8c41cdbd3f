import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import type { StandardSchema } from "../../src/core/standard-schema.ts";

export interface OrderInput {
  orderId: string;
  total: number;
  at: string;
}

export interface Order {
  orderId: string;
  total: number;
  at: Date;
}

/** One agreement in three libraries: the time is a text on the way and a Date in the handler. */
export const ORDER_SCHEMAS: readonly (readonly [library: string, schema: StandardSchema<OrderInput, Order>])[] = [
  [
    "zod",
    z.object({
      orderId: z.string().min(1),
      total: z.number(),
      at: z.iso.datetime().transform((text) => new Date(text)),
    }),
  ],
  [
    "valibot",
    v.object({
      orderId: v.pipe(v.string(), v.minLength(1)),
      total: v.number(),
      at: v.pipe(
        v.string(),
        v.isoTimestamp(),
        v.transform((text) => new Date(text)),
      ),
    }),
  ],
  ["arktype", type({ orderId: "string > 0", total: "number", at: "string.date.iso.parse" })],
];
