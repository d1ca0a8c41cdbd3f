import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { PreparedMessage, Writer } from "../../../src/core/contracts.ts";
import { defineEvents } from "../../../src/core/event-map.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { ORDER_SCHEMAS } from "../../support/order-schemas.ts";

const tx = {};

function recording() {
  const written: PreparedMessage[] = [];
  const writer: Writer<object> = {
    async enqueue(_, messages) {
      written.push(...messages);
      return messages.map(({ id }) => ({ id, duplicate: false }));
    },
    lockKey: async () => undefined,
    cancel: async () => false,
  };
  return { written, store: { writer } };
}

const payload = { orderId: "1", total: 2, at: "2026-01-02T03:04:05.000Z" };

describe.each(ORDER_SCHEMAS)("an outbox with a schema of %s", (_, schema) => {
  const scene = () => {
    const { written, store } = recording();
    const events = defineEvents({
      order_created: { stream: "orders", schema, version: 2, upcast: { 1: (old) => old } },
      other: { stream: "others", schema },
    });
    return { written, outbox: createOutbox({ store, events }) };
  };

  it("writes the stream and the version of the contract, and the payload as it was given", async () => {
    const { written, outbox } = scene();
    await outbox.enqueue(tx, { type: "order_created", payload, headers: { own: 1 } });
    await outbox.enqueue(tx, [{ type: "other", payload, stream: "others", headers: { schemaVersion: "1" } }]);
    expect(written.map(({ stream, body, headers }) => [stream, body, headers])).toEqual([
      ["orders", JSON.stringify(payload), '{"own":1,"schemaVersion":2}'],
      ["others", JSON.stringify(payload), '{"schemaVersion":1}'],
    ]);
  });

  it.each<[what: string, more: object, code: string, field: string, says: RegExp]>([
    [
      "a payload that does not fit",
      { payload: { ...payload, total: "2" } },
      "invalid_payload",
      "payload",
      /payload.total: /,
    ],
    [
      "another stream",
      { stream: "others" },
      "invalid_message",
      "stream",
      /belongs to the stream "orders", got "others"/,
    ],
    ["a type without a contract", { type: "order_creatd" }, "invalid_message", "type", /Did you mean "order_created"/],
    ["no type", { type: undefined }, "invalid_message", "type", /type must be a string/],
    [
      "another version",
      { headers: { schemaVersion: 1 } },
      "invalid_message",
      "headers.schemaVersion",
      /written as version 2, got schemaVersion 1/,
    ],
  ])("refuses %s before anything is written", async (_what, more, code, field, says) => {
    const { written, outbox } = scene();
    const good = { type: "order_created" as const, payload };
    const bad = { ...good, ...more } as typeof good;
    await expect(outbox.enqueue(tx, bad)).rejects.toMatchObject({ code, field, message: expect.stringMatching(says) });
    await expect(outbox.enqueue(tx, [good, bad])).rejects.toMatchObject({ code, field });
    expect(written).toEqual([]);
  });

  it("knows a message in the place of the transaction", async () => {
    const { outbox } = scene();
    const untyped = outbox as unknown as { enqueue(message: object): Promise<unknown> };
    await expect(untyped.enqueue({ type: "order_created", payload })).rejects.toMatchObject({ code: "no_transaction" });
  });
});

it("checks the form that JSON gives", async () => {
  const { written, store } = recording();
  const outbox = createOutbox({
    store,
    events: defineEvents({
      coerced: { stream: "s", schema: z.object({ at: z.coerce.date() }) },
      dated: { stream: "s", schema: z.object({ at: z.date() }) },
    }),
  });
  const at = new Date("2026-01-02T03:04:05.000Z");
  await outbox.enqueue(tx, { type: "coerced", payload: { at } });
  expect(written[0]?.body).toBe('{"at":"2026-01-02T03:04:05.000Z"}');
  // No handler could ever take it.
  await expect(outbox.enqueue(tx, { type: "dated", payload: { at } })).rejects.toMatchObject({
    code: "invalid_payload",
    issues: [{ path: ["at"] }],
    message: expect.stringMatching(/It is checked in the form that JSON gives it, in which a Date is a string/),
  });
});

it("refuses events that defineEvents did not give", () => {
  const { store } = recording();
  const events = { order_created: { stream: "orders", schema: z.any() } } as object;
  expect(() => createOutbox({ store, events })).toThrow(/createOutbox: events .* Pass \{ events: defineEvents/);
});
