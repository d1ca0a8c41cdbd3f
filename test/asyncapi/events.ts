import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { defineEvents } from "../../src/index.ts";

const Category = z.object({
  name: z.string(),
  get children(): z.ZodArray {
    return z.array(Category);
  },
});

/** A bit of everything, in three libraries: names that AsyncAPI does not take as they are, dates, unions, recursion. */
export const events = defineEvents({
  order_created: {
    stream: "orders",
    version: 2,
    schema: z.object({
      orderId: z.uuid(),
      total: z.number().nonnegative(),
      at: z.coerce.date(),
      lines: z.array(z.object({ sku: z.string().regex(/^\w+$/), count: z.int().min(1) })).min(1),
      payment: z.discriminatedUnion("by", [
        z.object({ by: z.literal("card"), last4: z.string().length(4) }),
        z.object({ by: z.literal("invoice") }),
      ]),
      labels: z.record(z.string(), z.string()).optional(),
      place: z.tuple([z.number(), z.number()]).nullable(),
      category: Category,
    }),
    upcast: { 1: (old) => old },
  },
  "order/paid (by card)": {
    stream: "payments.eu",
    schema: toStandardJsonSchema(
      v.object({
        orderId: v.pipe(v.string(), v.minLength(1)),
        at: v.pipe(
          v.string(),
          v.isoTimestamp(),
          v.transform((text) => new Date(text)),
        ),
        with: v.optional(v.picklist(["visa", "other"])),
      }),
    ),
  },
  order_sent: {
    stream: "orders",
    schema: type({
      orderId: "string > 0",
      at: "string.date.iso.parse",
      "carrier?": "'post' | 'bike'",
      to: "string | null",
    }),
  },
});
