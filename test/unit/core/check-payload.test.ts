import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
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

/** Its check fails later, when no code waits for it any more. */
const rejecting: StandardSchema = {
  "~standard": { version: 1, vendor: "mine", validate: async () => Promise.reject(new Error("unheard")) },
};

describe.each([
  ["zod", z.string().refine(async () => true)],
  ["a library whose check rejects", rejecting],
])("a schema of %s that waits", (_, schema) => {
  const late = contract({ stream: "s", schema });

  it("is refused by name when a message is enqueued", async () => {
    const error = failure(() => requirePayload(late, "x"));
    expect(error).toMatchObject({ code: "invalid_option", field: "order_created.schema" });
    expect(error.message).toMatch(/schema of order_created is asynchronous. Use a schema without asynchronous checks/);
    await new Promise((resolve) => setTimeout(resolve, 5));
  });

  it("kills no message in the handler: they wait until it is mended", async () => {
    expect(failure(() => readPayload(late, {}, "x"))).toMatchObject({
      code: "unavailable",
      route: "order_created: its schema",
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
  });
});

describe("a schema that throws", () => {
  const cause = new Error("mine");
  const throwing = contract({
    stream: "s",
    schema: v.pipe(
      v.string(),
      v.transform(() => {
        throw cause;
      }),
    ),
  });

  it("has not let the payload through", () => {
    expect(failure(() => requirePayload(throwing, "x"))).toMatchObject({ code: "invalid_payload", cause });
    const error = failure(() => readPayload(throwing, {}, "x"));
    expect(error).toMatchObject({ code: "permanent", cause });
    expect(error.message).toMatch(/the schema threw Error: mine/);
  });
});

it("names places that are no identifiers, and only the first of many", () => {
  const lists = contract({ stream: "s", schema: z.object({ "a b": z.array(z.number()) }) });
  const error = failure(() => requirePayload(lists, { "a b": Array.from({ length: 8 }, () => "x") }));
  expect(error.issues).toHaveLength(8);
  expect(error.message).toContain('payload["a b"][0]: ');
  expect(error.message).toContain("; and 3 more");
});
