import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { TxboxError } from "../../../src/core/errors.ts";
import { contractsOf, defineEvents } from "../../../src/core/event-map.ts";

const schema = z.object({ n: z.number() });
const up = (old: unknown) => old;

function failure(run: () => unknown): TxboxError {
  try {
    run();
  } catch (error) {
    if (error instanceof TxboxError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

/** As a caller without types would call it. */
const define = defineEvents as (definitions: unknown) => ReturnType<typeof defineEvents>;

describe("defineEvents", () => {
  it("keeps what was agreed, version 1 unless it says otherwise", () => {
    const { contracts } = defineEvents({
      a: { stream: "s", schema },
      b: { stream: "t", schema, version: 3, upcast: { 1: up, 2: up } },
    });
    expect(contracts?.get("a")).toEqual({ type: "a", stream: "s", version: 1, schema, upcasts: [] });
    expect(contracts?.get("b")).toEqual({ type: "b", stream: "t", version: 3, schema, upcasts: [up, up] });
  });

  it("takes schemas of every library, functions among them", () => {
    const { contracts } = defineEvents({
      a: { stream: "s", schema },
      b: { stream: "s", schema: v.object({ n: v.number() }) },
      c: { stream: "s", schema: type({ n: "number" }) },
    });
    expect([...(contracts?.values() ?? [])].map((one) => one.schema["~standard"].vendor)).toEqual([
      "zod",
      "valibot",
      "arktype",
    ]);
  });

  it("without schemas is types only", () => {
    expect(defineEvents<{ a: number }>()).toEqual({});
  });

  it.each<[what: string, definitions: unknown, field: string | undefined, says: RegExp]>([
    ["undefined", undefined, undefined, /takes an object, got undefined.*order_created: \{ stream/],
    ["an array", [], undefined, /takes an object, got an array/],
    ["nothing", {}, undefined, /given no events.*defineEvents<Events>\(\)/],
    ["a schema alone", { a: schema }, "a", /a is a schema alone.*a: \{ stream: "…", schema \}/],
    ["an event that is a text", { a: "orders" }, "a", /a must be an object, got a string/],
    ["an event without a schema", { a: { stream: "s" } }, "a.schema", /a has no schema.*zod/],
    ["an event without a stream", { a: { schema } }, "a.stream", /a needs the name of its stream, got undefined/],
    ["an empty stream", { a: { stream: "", schema } }, "a.stream", /stream, got ""/],
    ["an empty type", { "": { stream: "s", schema } }, undefined, /The type "" is empty/],
    ["a long type", { ["ü".repeat(101)]: { stream: "s", schema } }, undefined, /has 202 bytes, at most 200 fit/],
    ["a NUL in a type", { "a\0b": { stream: "s", schema } }, undefined, /The type "ab" has a NUL character/],
    ["half a character", { "\ud800": { stream: "s", schema } }, undefined, /has half of a surrogate pair/],
    [
      "a stream of its own use",
      { a: { stream: "inbox.x", schema } },
      "a.stream",
      /"inbox.x" is kept for what a stored/,
    ],
    ["a long stream", { a: { stream: "s".repeat(201), schema } }, "a.stream", /The stream of a has 201 bytes/],
    ["a NUL in a stream", { a: { stream: "a\0", schema } }, "a.stream", /The stream of a has a NUL/],
    [
      "a class as a schema",
      { a: { stream: "s", schema: String } },
      "a.schema",
      /a function, is no Standard Schema.*zod/,
    ],
    ["JSON Schema", { a: { stream: "s", schema: { type: "object" } } }, "a.schema", /an object, is no Standard Schema/],
    [
      "a schema of an old library",
      { a: { stream: "s", schema: { parse: up, _def: {} } } },
      "a.schema",
      /no Standard Schema. Use zod 3.24, valibot 1, arktype 2/,
    ],
    ["an asynchronous schema", { a: { stream: "s", schema: v.objectAsync({}) } }, "a.schema", /a is asynchronous/],
    ["a misspelled field", { a: { stream: "s", schema, versoin: 2 } }, "a.versoin", /Did you mean "version"/],
    ["version 0", { a: { stream: "s", schema, version: 0 } }, "a.version", /whole number from 1, got 0/],
    ["a version as text", { a: { stream: "s", schema, version: "2" } }, "a.version", /whole number from 1, got "2"/],
    ["half a version", { a: { stream: "s", schema, version: 1.5 } }, "a.version", /got 1.5/],
    ["a huge version", { a: { stream: "s", schema, version: 1e9 } }, "a.version", /version 1000000000 is too high/],
    ["no upcast", { a: { stream: "s", schema, version: 2 } }, "a.upcast", /version 2 and has no upcast from version 1/],
    [
      "a gap",
      { a: { stream: "s", schema, version: 3, upcast: { 1: up } } },
      "a.upcast",
      /a is version 3 and has no upcast from version 2. Add upcast: \{ 2: \(old\) => … \}/,
    ],
    [
      "an upcast from the present version",
      { a: { stream: "s", schema, version: 2, upcast: { 1: up, 2: up } } },
      "a.upcast",
      /has an upcast from "2". There is one, from version 1/,
    ],
    [
      "an upcast from a later version",
      { a: { stream: "s", schema, version: 3, upcast: { 1: up, 2: up, 3: up } } },
      "a.upcast",
      /has an upcast from "3". There is one for each version from 1 to 2/,
    ],
    ["an upcast of version 1", { a: { stream: "s", schema, upcast: { 1: up } } }, "a.upcast", /Version 1 has none/],
    ["an upcast that is none", { a: { stream: "s", schema, version: 2, upcast: { 1: 5 } } }, "a.upcast", /from 1 is 5/],
    ["upcasts as a function", { a: { stream: "s", schema, version: 2, upcast: up } }, "a.upcast", /must be an object/],
  ])("names what is wrong with %s", (_, definitions, field, says) => {
    const error = failure(() => define(definitions));
    expect(error).toMatchObject({ code: "invalid_option", field });
    expect(error.message).toMatch(says);
  });
});

describe("the option events", () => {
  it.each([
    ["definitions that did not go through defineEvents", { a: { stream: "s", schema } }],
    ["a text", "events"],
    ["null", null],
  ])("refuses %s", (_, events) => {
    const error = failure(() => contractsOf("createOutbox", events));
    expect(error).toMatchObject({ code: "invalid_option", field: "events" });
    expect(error.message).toMatch(/createOutbox: events is .* Pass \{ events: defineEvents/);
  });
});
