import { expect, it } from "vitest";
import { checkAuditOptions } from "../../../src/audit/audit-options.ts";

const store = { admin: { sent: () => undefined } };
const options = { from: store, to: store, consumer: "payments", since: new Date(0) };

it.each<[string, object]>([
  ["streams", { streams: "orders" }],
  ["streams", { streams: [] }],
  ["types", { types: [""] }],
  ["types", { types: [5] }],
  ["relay", { relay: "" }],
  ["since", { since: "1h" }],
  ["until", { until: new Date(-1) }],
  ["limit", { limit: Number.POSITIVE_INFINITY }],
  ["lateMs", { lateMs: "5m" }],
  ["rate", { rate: 0 }],
  ["requeue", { requeue: "the relay" }],
  ["onFinding", { onFinding: true }],
  ["signal", { signal: "stop" }],
])("refuses %s: %o", (field, wrong) => {
  expect(() => checkAuditOptions({ ...options, ...wrong } as never)).toThrow(
    expect.objectContaining({ code: "invalid_option", field, fix: expect.stringMatching(/\w{3}/) }),
  );
});

it("takes options that are all there", () => {
  const all = { relay: "to-rabbit", streams: ["orders"], types: ["order_placed"], until: new Date(1), limit: 0 };
  checkAuditOptions({ ...options, ...all, signal: new AbortController().signal } as never);
});
