import { describe, expect, test } from "vitest";
import { requireFittingEdit } from "../../../src/admin/edit-contract.ts";
import { contractsOf, defineEvents } from "../../../src/core/event-map.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { adminScene, ask } from "../../support/admin-scene.ts";
import { ORDER_SCHEMAS } from "../../support/order-schemas.ts";

const [, schema] = ORDER_SCHEMAS[0]!;
const events = defineEvents({
  order_placed: { stream: "orders", schema, version: 2, upcast: { 1: (old) => ({ ...(old as object), total: 1 }) } },
});
const contracts = contractsOf("test", events);
const GOOD = { orderId: "o-1", total: 5, at: "2026-01-31T08:00:00Z" };
const letter = {
  type: "order_placed",
  stream: "orders",
  body: "{}",
  headers: { correlationId: "c", schemaVersion: 2 },
};

describe("an edit of a message with a contract", () => {
  const BROKEN = { code: "invalid_payload", issues: [expect.objectContaining({ path: ["total"] })] };

  test.each([
    [{ payload: GOOD }],
    [{ body: JSON.stringify(GOOD) }],
    [{ payload: { orderId: "o-1", at: GOOD.at }, headers: { schemaVersion: 1 } }],
    // Only what is edited is checked.
    [{ headers: { schemaVersion: 2, note: "a" } }],
    // What this process does not know is for another to check.
    [{ payload: {}, headers: { schemaVersion: 3 } }],
    [{ body: new Uint8Array([1]), headers: { schemaVersion: 2, contentType: "application/octet-stream" } }],
  ])("that fits is let through: %o", (change) => {
    expect(() => requireFittingEdit(contracts, letter, change)).not.toThrow();
  });

  test("that breaks it is refused with its issues", () => {
    const edit = (change: object, of: object = {}) => {
      try {
        requireFittingEdit(contracts, { ...letter, ...of }, change);
      } catch (error) {
        return error;
      }
      return undefined;
    };
    expect(edit({ payload: { ...GOOD, total: "five" } })).toMatchObject(BROKEN);
    expect(edit({ body: JSON.stringify({ ...GOOD, total: null }) })).toMatchObject(BROKEN);
    expect(edit({ payload: { ...GOOD, total: "five" } }, { stream: "inbox.billing" })).toMatchObject(BROKEN);
    expect(edit({ headers: { schemaVersion: 1 } })).toMatchObject({ code: "invalid_payload" });
    // Of another stream it may be another message.
    expect(edit({ payload: {} }, { stream: "others" })).toBeUndefined();
    expect(edit({ payload: {} }, { type: "unknown" })).toBeUndefined();
  });
});

test.skipIf(!hasPostgres())("the page refuses such an edit, and changes nothing", async () => {
  await using scene = await adminScene();
  await scene.enqueue({ stream: "orders", type: "order_placed", key: "k", payload: {}, id: "m-1" });
  await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
  const choice = { relay: "r", position: "1" };
  const edit = (payload: object) => ({
    action: "edit",
    store: "shop",
    choice,
    actor: "ada",
    reason: "a typing error",
    payload: JSON.stringify(payload),
  });
  const known = scene.admin({ events: defineEvents({ order_placed: { stream: "orders", schema } }) });
  const refused = await ask(known, "/api/act", { body: edit({ ...GOOD, total: "five" }) });
  expect([refused.status, refused.json["error"]]).toEqual([
    400,
    expect.stringMatching(/^The payload of order_placed \(version 1\) does not fit: payload\.total: /),
  ]);
  expect((await scene.store.admin.dead({}))[0]!.edited).toBe(false);
  expect((await ask(known, "/api/act", { body: edit(GOOD) })).status).toBe(200);
  // Where no contracts are known it is taken: the handler's check tells.
  expect((await ask(scene.admin(), "/api/act", { body: edit({ total: "five" }) })).status).toBe(200);
});
