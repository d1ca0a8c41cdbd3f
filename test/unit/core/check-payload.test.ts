import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import * as mini from "zod/mini";
import { z as z3 } from "zod/v3";
import { readPayload, requirePayload } from "../../../src/core/check-payload.ts";
import type { EventDefinition } from "../../../src/core/contract.ts";
import type { TxboxError } from "../../../src/core/errors.ts";
import { defineEvents } from "../../../src/core/event-map.ts";
import type { StandardSchema } from "../../../src/core/standard-schema.ts";
import { ORDER_SCHEMAS } from "../../support/order-schemas.ts";

function contract(definition: EventDefinition) {
  return defineEvents({ order_created: definition }).contracts!.get("order_created")!;
}

function failure(run: () => unknown): TxboxError {
  try {
    run();
  } catch (error) {
    return error as TxboxError;
  }
  throw new Error("nothing was thrown");
}

const wire = { orderId: "1", total: 2, at: "2026-01-02T03:04:05.000Z" };

describe.each(ORDER_SCHEMAS)("a schema of %s", (_, schema) => {
  const orders = contract({ stream: "orders", schema });

  it("lets through what fits, and gives the handler what it makes of it", () => {
    requirePayload(orders, wire);
    expect(readPayload(orders, {}, wire)).toEqual({ orderId: "1", total: 2, at: new Date(wire.at) });
  });

  it("refuses what does not fit, with every place of it", () => {
    const wrong = { orderId: "", total: "2", at: "yesterday" };
    const error = failure(() => requirePayload(orders, wrong));
    expect(error).toMatchObject({ code: "invalid_payload", field: "payload", retryable: false });
    expect(error.issues?.map(({ path }) => path).toSorted()).toEqual([["at"], ["orderId"], ["total"]]);
    for (const { path, message } of error.issues ?? []) {
      expect(message).not.toBe("");
      expect(error.message).toContain(`payload.${path[0]}: ${message}`);
    }
    const atHandler = failure(() => readPayload(orders, {}, wrong));
    expect(atHandler).toMatchObject({ code: "permanent", issues: error.issues });
    expect(atHandler.message).toContain("The payload of order_created (version 1) does not fit: payload.");
  });

  it("keeps of an issue its place and its words alone, not the payload", () => {
    const { issues } = failure(() => requirePayload(orders, { ...wire, total: "secret" }));
    expect(issues?.map((issue) => Object.keys(issue))).toEqual([["path", "message"]]);
  });
});

describe("versions", () => {
  const orders = contract({
    stream: "orders",
    version: 3,
    schema: z.object({ total: z.number(), currency: z.string() }),
    upcast: {
      1: (old: { total: string }) => ({ total: Number(old.total) }),
      2: (old: { total: number }) => ({ ...old, currency: "EUR" }),
    },
  });

  it.each([
    ["none", undefined],
    ["null", null],
    ["1", 1],
    ["the text of some brokers", "1"],
    ["a bigint of some clients", 1n],
  ])("%s is the first, and goes through every step", (_, schemaVersion) => {
    const headers = schemaVersion === undefined ? {} : { schemaVersion: schemaVersion as number };
    expect(readPayload(orders, headers, { total: "5" })).toEqual({ total: 5, currency: "EUR" });
  });

  it("between go through the steps that are left; the present one through none", () => {
    expect(readPayload(orders, { schemaVersion: 2 }, { total: 5 })).toEqual({ total: 5, currency: "EUR" });
    expect(readPayload(orders, { schemaVersion: "3" }, { total: 5, currency: "CHF" })).toMatchObject({
      currency: "CHF",
    });
  });

  it("newer than this process knows wait, and no other type with them", () => {
    const error = failure(() => readPayload(orders, { schemaVersion: 4 }, { whatever: 1 }));
    expect(error).toMatchObject({ code: "unavailable", route: "order_created after version 3", version: 4 });
    expect(error.message).toMatch(/order_created has version 4, and this process knows it up to version 3/);
    expect(failure(() => readPayload(orders, { schemaVersion: 99 }, 1))).toMatchObject({
      route: "order_created after version 3",
    });
  });

  it.each([0, -1, 1.5, "", "v2", "1.0.0", Number.NaN, true, {}])("%j is none: a dead letter that says so", (given) => {
    const error = failure(() => readPayload(orders, { schemaVersion: given as string }, {}));
    expect(error).toMatchObject({ code: "permanent", field: "headers.schemaVersion" });
    expect(error.message).toMatch(/schemaVersion of order_created must be a whole number from 1, got /);
  });

  it("an upcast payload that does not fit says from where it came", () => {
    const error = failure(() => readPayload(orders, {}, { total: "many" }));
    expect(error.code).toBe("permanent");
    expect(error.message).toMatch(/\(version 1, upcast to 3\) does not fit: payload.total: /);
  });

  it("an upcast that throws is a dead letter with the reason", () => {
    const cause = new TypeError("no total");
    const throwing = contract({
      stream: "s",
      schema: z.any(),
      version: 2,
      upcast: {
        1: () => {
          throw cause;
        },
      },
    });
    const error = failure(() => readPayload(throwing, {}, {}));
    expect(error).toMatchObject({ code: "permanent", cause });
    expect(error.message).toBe("The upcast of order_created from version 1 threw TypeError: no total");
  });

  it("an upcast that is asynchronous says so, and its rejection is heard", async () => {
    const late = contract({
      stream: "s",
      schema: z.any(),
      version: 2,
      upcast: { 1: async () => Promise.reject(new Error("unheard")) },
    });
    expect(failure(() => readPayload(late, {}, {})).message).toMatch(
      /from version 1 gave a promise. Make it synchronous/,
    );
    await new Promise((resolve) => setTimeout(resolve, 5));
  });
});

const unheard = () => Promise.reject(new Error("unheard"));
const notYet = async () => {
  await new Promise((resolve) => setTimeout(resolve, 1));
  throw new Error("unheard");
};

/** What waits, as far as each library lets one write it; its check fails later, when nothing waits for it any more. */
const LATE: readonly (readonly [library: string, schema: unknown])[] = [
  ["zod, in a refinement", z.string().refine(async () => true)],
  ["zod, in a refinement that rejects", z.string().refine(unheard)],
  ["zod, in a refinement that rejects later", z.object({ a: z.string().refine(notYet) })],
  ["zod, in a transform that rejects", z.string().transform(unheard)],
  ["zod, in a part of an array", z.array(z.string().transform(notYet))],
  ["zod, in a preprocessing step", z.preprocess(unheard, z.string())],
  ["zod/mini, in a refinement", mini.string().check(mini.refine(unheard))],
  ["zod/mini, in a transform", mini.pipe(mini.string(), mini.transform(notYet))],
  ["zod 3, in a refinement", z3.string().refine(unheard)],
  ["zod 3, in a transform", z3.object({ a: z3.string().transform(notYet) })],
  [
    "valibot, in a part of a synchronous schema",
    v.object({ a: v.pipeAsync(v.string(), v.checkAsync(unheard)) as never }),
  ],
  ["arktype, in a condition", type("string").narrow(notYet as never)],
  ["arktype, in a morph", type("string").pipe(unheard)],
  ["a library of its own", { "~standard": { version: 1, vendor: "mine", validate: unheard } }],
];
const PAYLOADS = ["x", { a: "x" }, ["x"]];

describe.each(LATE)("a schema that waits, of %s", (_, schema) => {
  const late = contract({ stream: "s", schema: schema as StandardSchema });
  const payload = PAYLOADS.find((one) => {
    try {
      requirePayload(late, one);
    } catch (error) {
      return (error as TxboxError).code === "invalid_option";
    }
    return false;
  });

  it("is refused by name when a message is enqueued", async () => {
    const error = failure(() => requirePayload(late, payload));
    expect(error).toMatchObject({ code: "invalid_option", field: "order_created.schema" });
    expect(error.message).toMatch(/schema of order_created is asynchronous. Use a schema without asynchronous checks/);
    await new Promise((resolve) => setTimeout(resolve, 5));
  });

  it("kills no message in the handler: they wait until it is mended", async () => {
    expect(failure(() => readPayload(late, {}, payload))).toMatchObject({
      code: "unavailable",
      route: "order_created: its schema",
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
  });
});

const cause = new Error("mine");
const throwIt = (): never => {
  throw cause;
};

describe.each([
  ["zod, in a transform", z.string().transform(throwIt)],
  ["zod, in a refinement", z.string().refine(throwIt)],
  ["zod, deep inside", z.object({ a: z.array(z.string().transform(throwIt)) })],
  ["zod/mini, in a transform", mini.pipe(mini.string(), mini.transform(throwIt))],
  ["zod/mini, in a refinement", mini.string().check(mini.refine(throwIt))],
  ["zod 3, in a transform", z3.string().transform(throwIt)],
  ["zod 3, in a refinement", z3.string().refine(throwIt)],
  ["valibot, in a transform", v.pipe(v.string(), v.transform(throwIt))],
  ["valibot, in a check", v.pipe(v.string(), v.check(throwIt))],
  ["arktype, in a morph", type("string").pipe(throwIt)],
  ["arktype, in a condition", type("string").narrow(throwIt)],
  ["a library of its own", { "~standard": { version: 1, vendor: "mine", validate: throwIt } }],
] as readonly (readonly [string, unknown])[])("a schema that throws, of %s", (which, schema) => {
  const throwing = contract({ stream: "s", schema: schema as StandardSchema });
  const payload = which.endsWith("deep inside") ? { a: ["x"] } : "x";

  it("has not let the payload through, and says why", () => {
    const atEnqueue = failure(() => requirePayload(throwing, payload));
    expect(atEnqueue).toMatchObject({ code: "invalid_payload", cause });
    const error = failure(() => readPayload(throwing, {}, payload));
    expect(error).toMatchObject({ code: "permanent", cause });
    for (const { message } of [atEnqueue, error]) expect(message).toMatch(/the schema threw Error: mine/);
  });
});

describe.each([
  ["nothing", undefined, "gave undefined"],
  ["null", null, "gave null"],
  ["the bare value", "x", "gave a string"],
  ["an object of its own", { ok: true }, "gave an object"],
  ["issues that are no array", { issues: "wrong" }, "gave an object"],
])("a schema whose validate gives %s", (_, result, said) => {
  const validate = (): never => result as never;
  const odd = contract({ stream: "s", schema: { "~standard": { version: 1, vendor: "mine", validate } } });

  it("is named, and kills no message", () => {
    const error = failure(() => requirePayload(odd, "x"));
    expect(error).toMatchObject({ code: "invalid_option", field: "order_created.schema" });
    expect(error.message).toContain(`The schema of order_created ${said} instead of a result. Its validate has to`);
    expect(failure(() => readPayload(odd, {}, "x"))).toMatchObject({
      code: "unavailable",
      route: "order_created: its schema",
    });
  });
});

it("names places that are no identifiers, and only the first of many", () => {
  const lists = contract({ stream: "s", schema: z.object({ "a b": z.array(z.number()) }) });
  const error = failure(() => requirePayload(lists, { "a b": Array.from({ length: 8 }, () => "x") }));
  expect(error.issues).toHaveLength(8);
  expect(error.message).toContain('payload["a b"][0]: ');
  expect(error.message).toContain("; and 3 more");
});
