import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { misfits } from "../../../src/contracts/compare-schemas.ts";

type Schema = Record<string, unknown>;

const VALUES = [null, true, false, 0, 1, 2, 1.5, -1, "", "a", "b", "abc"] as const;

/** Small schemas that overlap often. */
const { schema: schemas } = fc.letrec<{ schema: Schema }>((tie) => {
  const leaf = fc.oneof(
    fc.constantFrom<Schema>({ type: "string" }, { type: "number" }, { type: "integer" }, { type: "boolean" }),
    fc.constantFrom<Schema>({ type: "null" }, { type: ["string", "null"] }, { type: ["integer", "string"] }),
    fc.subarray([...VALUES], { minLength: 1, maxLength: 3 }).map((values): Schema => ({ enum: values })),
    fc.constantFrom(...VALUES).map((value): Schema => ({ const: value })),
    fc.nat(2).map((n): Schema => ({ type: "string", minLength: n })),
    fc.nat(2).map((n): Schema => ({ type: "string", maxLength: n })),
    fc.nat(2).map((n): Schema => ({ type: "number", minimum: n })),
    fc.nat(2).map((n): Schema => ({ type: "number", exclusiveMaximum: n })),
  );
  const inner = tie("schema");
  const object = fc
    .record({ a: inner, b: inner, required: fc.subarray(["a", "b"]), closed: fc.boolean() })
    .chain(({ a, b, required, closed }) =>
      fc.constantFrom<Schema>({ a, b }, { a }).map((properties): Schema => {
        const present = required.filter((name) => name in properties);
        return { type: "object", properties, required: present, ...(closed ? { additionalProperties: false } : {}) };
      }),
    );
  return {
    schema: fc.oneof(
      { depthSize: "small", maxDepth: 3 },
      leaf,
      object,
      fc.record({ type: fc.constant("array"), items: inner }),
      fc.tuple(inner, inner).map((anyOf): Schema => ({ anyOf })),
      inner.map((additionalProperties): Schema => ({ type: "object", additionalProperties })),
    ),
  };
});

const payloads = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", maxDepth: 3 },
    fc.constantFrom(...VALUES),
    fc.array(tie("value"), { maxLength: 2 }),
    fc.dictionary(fc.constantFrom("a", "b"), tie("value"), { maxKeys: 2 }),
  ),
})).value;

/** By a judge that knows nothing of the comparison. */
const judge = (schema: Schema) => z.fromJSONSchema(schema);

/** A payload has what its own schema mentions: no producer writes more. */
function mentions(schema: unknown, value: unknown): boolean {
  if (typeof value !== "object" || value === null || typeof schema !== "object" || schema === null) return true;
  const { properties = {}, additionalProperties, items, anyOf } = schema as Schema;
  if (Array.isArray(anyOf)) {
    return (anyOf as Schema[]).some((one) => judge(one).safeParse(value).success && mentions(one, value));
  }
  if (Array.isArray(value)) return value.every((item) => mentions(items, item));
  return Object.entries(value).every(([name, part]) => {
    const own = (properties as Schema)[name] ?? additionalProperties;
    return own !== undefined && mentions(own, part);
  });
}

describe("the comparison of schemas", () => {
  it("says nothing of a schema and itself", () => {
    fc.assert(
      fc.property(schemas, (schema) => {
        const one = { schema, document: schema };
        expect(misfits(one, one).filter(({ kind }) => kind !== "absent")).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });

  it("finds nothing only where every payload of the one fits the other", () => {
    let fitting = 0;
    fc.assert(
      fc.property(schemas, schemas, fc.array(payloads, { minLength: 20, maxLength: 20 }), (given, wanted, values) => {
        const found = misfits({ schema: given, document: given }, { schema: wanted, document: wanted });
        if (found.some(({ kind }) => kind !== "absent")) return;
        const from = judge(given);
        const to = judge(wanted);
        for (const value of values) {
          if (!from.safeParse(value).success || !mentions(given, value)) continue;
          fitting++;
          expect({ value, fits: to.safeParse(value).success }).toEqual({ value, fits: true });
        }
      }),
      { numRuns: 3000 },
    );
    // Or the test would prove nothing.
    expect(fitting).toBeGreaterThan(100);
  });
});
