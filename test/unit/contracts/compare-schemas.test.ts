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

/** What a producer would write: fields that its schema mentions, and nothing else. */
function payloadOf(schema: Schema): fc.Arbitrary<unknown> {
  const { type, properties = {}, required = [], additionalProperties, items, anyOf } = schema;
  if ("const" in schema) return fc.constant(schema["const"]);
  if (Array.isArray(schema["enum"])) return fc.constantFrom<unknown>(...(schema["enum"] as unknown[]));
  if (Array.isArray(anyOf)) return fc.oneof(...(anyOf as Schema[]).map(payloadOf));
  if (Array.isArray(type)) return fc.oneof(...type.map((one: unknown) => payloadOf({ ...schema, type: one })));
  if (type === "array") return fc.array(payloadOf(items as Schema), { maxLength: 2 });
  if (type !== "object") {
    const fits = VALUES.filter((value) => judge(schema).safeParse(value).success);
    return fits.length === 0 ? fc.constant(undefined) : fc.constantFrom<unknown>(...fits);
  }
  if (typeof additionalProperties === "object" && additionalProperties !== null)
    return fc.dictionary(fc.constantFrom("a", "b"), payloadOf(additionalProperties as Schema), { maxKeys: 2 });
  const fields = Object.entries(properties as Record<string, Schema>).map(([name, one]) => [name, payloadOf(one)]);
  return fc.record(Object.fromEntries(fields) as Record<string, fc.Arbitrary<unknown>>, {
    requiredKeys: required as string[],
  });
}

/** Another schema that has much in common with this one: a part of it is changed. */
function near(schema: Schema): fc.Arbitrary<Schema> {
  const { properties, items, anyOf } = schema;
  const changes: fc.Arbitrary<Schema>[] = [fc.constant(schema), schemas.map((other) => ({ anyOf: [other, schema] }))];
  if (properties !== undefined) {
    const names = fc.subarray(Object.keys(properties as object));
    changes.push(names.map((some) => ({ ...schema, required: some })));
    for (const [name, one] of Object.entries(properties as Record<string, Schema>)) {
      const parts = properties as Record<string, Schema>;
      changes.push(near(one).map((other) => ({ ...schema, properties: { ...parts, [name]: other } })));
    }
  }
  if (items !== undefined) changes.push(near(items as Schema).map((other) => ({ ...schema, items: other })));
  if (Array.isArray(anyOf))
    changes.push(near((anyOf as Schema[])[0]!).map((other) => ({ anyOf: [(anyOf as Schema[])[1]!, other] })));
  return fc.oneof(...changes, schemas);
}

/** By a judge that knows nothing of the comparison. */
const judge = (schema: Schema) => z.fromJSONSchema(schema);

describe("the comparison of schemas", () => {
  it("says nothing of a schema and itself", () => {
    fc.assert(
      fc.property(schemas, (schema) => {
        const one = { schema, document: schema };
        expect(misfits(one, one).filter(({ kind }) => kind !== "absent")).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });

  it("finds nothing only where every payload of the one fits the other", () => {
    let fitting = 0;
    let refused = 0;
    const pairs = schemas.chain((given) =>
      fc.tuple(fc.constant(given), near(given), fc.array(payloadOf(given), { minLength: 10, maxLength: 10 })),
    );
    fc.assert(
      fc.property(pairs, ([given, wanted, values]) => {
        const found = misfits({ schema: given, document: given }, { schema: wanted, document: wanted });
        if (found.some(({ kind }) => kind !== "absent")) {
          refused++;
          return;
        }
        const from = judge(given);
        const to = judge(wanted);
        for (const value of values) {
          if (!from.safeParse(value).success) continue;
          fitting++;
          expect({ value, fits: to.safeParse(value).success }).toEqual({ value, fits: true });
        }
      }),
      { numRuns: 400 },
    );
    // Or the test would prove nothing.
    expect(fitting).toBeGreaterThan(400);
    expect(refused).toBeGreaterThan(40);
  });
});
