import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { asyncapiDocument, readAsyncapi, type Description } from "../../../src/contracts/asyncapi-document.ts";
import { compareContracts } from "../../../src/contracts/compare-contracts.ts";
import type { EventDefinition } from "../../../src/core/contract.ts";
import { defineEvents } from "../../../src/core/event-map.ts";
import type { StandardSchema } from "../../../src/core/standard-schema.ts";

function describeEvents(definitions: Readonly<Record<string, EventDefinition>>): Description {
  const contracts = [...defineEvents(definitions).contracts!.values()];
  // As it comes back from a file.
  const text = JSON.stringify(asyncapiDocument(contracts, "Test"));
  return readAsyncapi(JSON.parse(text) as unknown, "asyncapi.json");
}

/** `severity event path says`, of two forms of one event. */
function compare(before: Partial<EventDefinition>, after: Partial<EventDefinition>): string[] {
  const whole = (definition: Partial<EventDefinition>) =>
    describeEvents({ created: { stream: "orders", schema: z.unknown(), ...definition } });
  return compareContracts(whole(before), whole(after)).map(({ severity, path, says }) =>
    [severity, path, says].filter((part) => part !== undefined).join(" "),
  );
}

const payloads = (before: StandardSchema, after: StandardSchema): string[] =>
  compare({ schema: before }, { schema: after });

const base = { id: z.string(), total: z.number() };
const NEW = "consumers that were not changed refuse the message";
const OLD = "older messages are refused";

describe("events", () => {
  const schema = z.object(base);
  const one = { stream: "orders", schema };
  it.each<
    [what: string, before: Record<string, EventDefinition>, after: Record<string, EventDefinition>, found: object[]]
  >([
    ["the same", { a: one }, { a: one }, []],
    ["in another order", { a: one, b: one }, { b: one, a: one }, []],
    ["one more", { a: one }, { a: one, b: one }, [{ event: "b", severity: "harmless", says: "is new" }]],
    [
      "one less",
      { a: one, b: one },
      { a: one },
      [{ event: "b", severity: "breaking", says: expect.stringMatching(/^was removed/) }],
    ],
    [
      "another stream",
      { a: one },
      { a: { ...one, stream: "others" } },
      [{ event: "a", severity: "breaking", says: expect.stringMatching(/from the stream "orders" to "others"/) }],
    ],
    [
      "a version more",
      { a: one },
      { a: { ...one, version: 2, upcast: { 1: (old) => old } } },
      [{ event: "a", severity: "harmless", says: expect.stringMatching(/^is version 2, was 1: /) }],
    ],
    [
      "a version less",
      { a: { ...one, version: 2, upcast: { 1: (old) => old } } },
      { a: one },
      [{ event: "a", severity: "breaking", says: expect.stringMatching(/^went back from version 2 to 1/) }],
    ],
  ])("%s", (_, before, after, found) => {
    expect(compareContracts(describeEvents(before), describeEvents(after))).toEqual(found);
  });
});

describe("payloads", () => {
  it.each<[what: string, before: StandardSchema, after: StandardSchema, found: string[]]>([
    ["the same", z.object(base), z.object(base), []],
    [
      "a required field removed",
      z.object(base),
      z.object({ id: base.id }),
      [`breaking payload.total was removed: ${NEW}`],
    ],
    [
      "a required field added",
      z.object({ id: base.id }),
      z.object(base),
      [`breaking payload.total must be there now: ${OLD} without it`],
    ],
    [
      "a field that is optional now",
      z.object(base),
      z.object({ ...base, total: z.number().optional() }),
      [`breaking payload.total was always there, and may be missing now: ${NEW}`],
    ],
    [
      "a field that is required now",
      z.object({ ...base, total: z.number().optional() }),
      z.object(base),
      [`breaking payload.total must be there now: ${OLD} without it`],
    ],
    [
      "an optional field added",
      z.object({ id: base.id }),
      z.object({ id: base.id, note: z.string().optional() }),
      ["harmless payload.note is new, and optional"],
    ],
    [
      "an optional field removed",
      z.object({ id: base.id, note: z.string().optional() }),
      z.object({ id: base.id }),
      ["harmless payload.note was optional, and is not written any more"],
    ],
    [
      "an optional field added to what refuses others",
      z.strictObject({ id: base.id }),
      z.strictObject({ id: base.id, note: z.string().optional() }),
      [`breaking payload.note is new: ${NEW}`, "harmless payload.note is new, and optional"],
    ],
    [
      "another type",
      z.object(base),
      z.object({ ...base, total: z.string() }),
      [
        `breaking payload.total may be string now: ${NEW}`,
        `breaking payload.total may not be number any more: ${OLD} where it is`,
      ],
    ],
    [
      "a narrower type",
      z.object({ n: z.union([z.number(), z.string()]) }),
      z.object({ n: z.number() }),
      [`breaking payload.n may not be string any more: ${OLD} where it is`],
    ],
    [
      "no null any more",
      z.object({ n: z.string().nullable() }),
      z.object({ n: z.string() }),
      [`breaking payload.n may not be null any more: ${OLD} where it is`],
    ],
    [
      "whole numbers of numbers",
      z.object({ n: z.number() }),
      z.object({ n: z.int().min(0) }),
      [`breaking payload.n may not be number any more: ${OLD} where it is`],
    ],
    [
      "one value less",
      z.object({ k: z.enum(["a", "b", "c"]) }),
      z.object({ k: z.enum(["a", "b"]) }),
      [`breaking payload.k may not be "c" any more: ${OLD} where it is`],
    ],
    [
      "one value more",
      z.object({ k: z.enum(["a", "b"]) }),
      z.object({ k: z.enum(["a", "b", "c"]) }),
      [`breaking payload.k may be "c" now: ${NEW}`],
    ],
    [
      "any text instead of values",
      z.object({ k: z.enum(["a"]) }),
      z.object({ k: z.string() }),
      [`breaking payload.k may be any value now: ${NEW}`],
    ],
    [
      "a lower limit",
      z.object({ n: z.number().max(10) }),
      z.object({ n: z.number().max(5) }),
      [`breaking payload.n must keep maximum 5 now: ${OLD} that do not`],
    ],
    [
      "a longer text",
      z.object({ t: z.string().max(10) }),
      z.object({ t: z.string() }),
      [`breaking payload.t may be outside of maxLength 10 now: ${NEW}`],
    ],
    [
      "a field of an item of a list",
      z.object({ lines: z.array(z.object({ sku: z.string(), n: z.number() })) }),
      z.object({ lines: z.array(z.object({ sku: z.string() })) }),
      [`breaking payload.lines[].n was removed: ${NEW}`],
    ],
    [
      "values of a record",
      z.record(z.string(), z.number()),
      z.record(z.string(), z.string()),
      [
        `breaking payload.* may be string now: ${NEW}`,
        `breaking payload.* may not be number any more: ${OLD} where it is`,
      ],
    ],
    [
      "a place of a tuple",
      z.tuple([z.string(), z.number()]),
      z.tuple([z.string(), z.boolean()]),
      [
        `breaking payload[1] may be boolean now: ${NEW}`,
        `breaking payload[1] may not be number any more: ${OLD} where it is`,
      ],
    ],
    [
      "a variant more",
      z.discriminatedUnion("t", [z.object({ t: z.literal("x") })]),
      z.discriminatedUnion("t", [z.object({ t: z.literal("x") }), z.object({ t: z.literal("y") })]),
      [`breaking payload.t may be "y" now: ${NEW}`],
    ],
    [
      "a field of one variant",
      z.discriminatedUnion("t", [z.object({ t: z.literal("x") }), z.object({ t: z.literal("y"), q: z.number() })]),
      z.discriminatedUnion("t", [z.object({ t: z.literal("x") }), z.object({ t: z.literal("y"), q: z.string() })]),
      [
        `breaking payload.q may be string now: ${NEW}`,
        `breaking payload.q may not be number any more: ${OLD} where it is`,
      ],
    ],
    [
      "what is both of two",
      z.intersection(z.object({ a: z.string() }), z.object({ b: z.string() })),
      z.intersection(z.object({ a: z.string() }), z.object({ c: z.string() })),
      [`breaking payload.b was removed: ${NEW}`, `breaking payload.c must be there now: ${OLD} without it`],
    ],
    [
      "another date form in the program alone",
      z.object({ at: z.coerce.date() }),
      z.object({ at: z.coerce.date().optional() }),
      [`breaking payload.at was always there, and may be missing now: ${NEW}`],
    ],
    [
      "anything instead of something",
      z.object({ n: z.number() }),
      z.object({ n: z.unknown() }),
      ["null", "boolean", "string", "array", "object"].map((one) => `breaking payload.n may be ${one} now: ${NEW}`),
    ],
  ])("%s", (_, before, after, found) => {
    expect(payloads(before, after)).toEqual(found);
  });

  it("that refer to themselves are compared as far as they differ", () => {
    const tree = (leaf: z.ZodType) => {
      const Node = z.object({
        leaf,
        get children(): z.ZodArray {
          return z.array(Node);
        },
      });
      return z.object({ root: Node });
    };
    expect(payloads(tree(z.string()), tree(z.string()))).toEqual([]);
    expect(payloads(tree(z.string()), tree(z.number()))).toEqual([
      `breaking payload.root.leaf may be number now: ${NEW}`,
      `breaking payload.root.leaf may not be string any more: ${OLD} where it is`,
    ]);
  });

  it("of one agreement in three libraries are the same", () => {
    const schemas = [
      z.object({ id: z.string().min(1), n: z.number(), k: z.enum(["a", "b"]), o: z.string().nullable().optional() }),
      toStandardJsonSchema(
        v.object({
          id: v.pipe(v.string(), v.minLength(1)),
          n: v.number(),
          k: v.picklist(["a", "b"]),
          o: v.optional(v.nullable(v.string())),
        }),
      ),
      type({ id: "string > 0", n: "number", k: "'a' | 'b'", "o?": "string | null" }),
    ];
    for (const one of schemas) for (const other of schemas) expect(payloads(one, other)).toEqual([]);
  });

  it("with a new version break nothing of txbox: consumers wait, and old messages are upcast", () => {
    const after = { schema: z.object({ id: z.string() }), version: 2, upcast: { 1: (old: unknown) => old } };
    expect(compare({ schema: z.object(base) }, after)).toEqual([
      "harmless is version 2, was 1: consumers that do not know it wait until they do",
      `versioned payload.total was removed: ${NEW}`,
    ]);
  });
});

describe("a document", () => {
  it("of another author is read by its channels, or refused by name", () => {
    const channels = {
      orders: { address: "orders.v1", messages: { created: { $ref: "#/components/messages/created" } } },
    };
    const payload = { type: "object", required: ["id"] };
    const document = { asyncapi: "3.0.0", channels, components: { messages: { created: { payload } } } };
    expect(readAsyncapi(document, "a.json").events).toEqual([
      { type: "created", stream: "orders.v1", version: 1, payload },
    ]);
    expect(() => readAsyncapi({ openapi: "3.1.0" }, "a.json")).toThrow(
      /a.json is no AsyncAPI document. Write it with txbox/,
    );
    expect(() => readAsyncapi({ ...document, channels: {} }, "a.json")).toThrow(
      /has the message created without a channel/,
    );
  });
});
