import { describe, expect, it } from "vitest";
import { errorGroup, kindOfError } from "../../../src/core/error-group.ts";

/** Errors as Node, drivers, brokers and clients write them: those of one line are of one kind. */
const SAME: readonly (readonly string[])[] = [
  [
    "Error: connect ECONNREFUSED 127.0.0.1:5672",
    "Error: connect ECONNREFUSED 10.12.0.7:5673",
    "Error: connect ECONNREFUSED ::1:5672",
  ],
  [
    "TypeError: Cannot read properties of undefined (reading 'total')",
    "TypeError: Cannot read properties of undefined (reading 'id')",
  ],
  [
    'error: duplicate key value violates unique constraint "orders_pkey" (Key (id)=(4711) already exists.)',
    'error: duplicate key value violates unique constraint "orders_pkey" (Key (id)=(4712) already exists.)',
  ],
  [
    'error: invalid input syntax for type uuid: "4711"',
    'error: invalid input syntax for type uuid: "a \\"quoted\\" one"',
  ],
  [
    'MongoServerError: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: "a-1" }',
    'MongoServerError: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: "b-2" }',
  ],
  [
    "PermanentError: no payment 01J9ZQ3V5W8X2Y4Z6A7B8C9D0E for order 0198c7c2-11aa-7bbb-8ccc-0123456789ab",
    "PermanentError: no payment 01J9ZQ3V5W8X2Y4Z6A7B8C9D0F for order 0198c7c2-22aa-7bbb-8ccc-0123456789ab",
  ],
  [
    "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'orders' in vhost '/': received '1' but current is '2'",
    "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'payments' in vhost '/eu': received '10' but current is '20'",
  ],
  [
    "KafkaJSProtocolError: This server is not the leader for that topic-partition 3",
    "KafkaJSProtocolError: This server is not the leader for that topic-partition 17",
  ],
  ["NatsError: 503 no responders for subject orders.4711", "NatsError: 503 no responders for subject orders.4712"],
  ["ReplyError: MOVED 3999 127.0.0.1:6381", "ReplyError: MOVED 12182 127.0.0.1:6382"],
  ["HandlerTimeout: no answer within 30000 ms", "HandlerTimeout: no answer within 1500 ms"],
  ["Error: card of anna@example.com was refused", "Error: card of bert.b@shop.example.org was refused"],
  [
    "TypeError: fetch failed (https://api.example.com/v1/orders/4711?x=1)",
    "TypeError: fetch failed (https://api.example.com/v1/orders/4712)",
  ],
  [
    "Error: it can't be (order 1)\n    at charge (/app/dist/pay.js:10:5)",
    "Error: it can't be (order 22)\n    at charge (/app/dist/pay.js:99:1)\n    at async run (node:internal:1:1)",
  ],
  [
    "SyntaxError: Unexpected token 'a', \"a b\" is not valid JSON",
    "SyntaxError: Unexpected token '<', \"<html>\" is not valid JSON",
  ],
  ["Error: amount 10.50 EUR exceeds 9,99", "Error: amount 1050 EUR exceeds 9"],
  ["Error: items 1, 2, 3 are missing", "Error: items 4 are missing"],
  ["Error: «Müller» is unknown", "Error: “O'Neil” is unknown"],
];

/** Errors that a person would not mend in one go. */
const DIFFERENT: readonly (readonly [string, string])[] = [
  ["Error: connect ECONNREFUSED 127.0.0.1:5672", "Error: connect ETIMEDOUT 127.0.0.1:5672"],
  ["AxiosError: Request failed with status code 404", "AxiosError: Request failed with status code 500"],
  ["Error: HTTP 503", "Error: HTTP 429"],
  ["TypeError: x is not a function", "ReferenceError: x is not a function"],
  ['error: relation "orders" does not exist', 'error: column "orders" does not exist'],
  ["Error: it can't be paid and won't be", "Error: it can't be charged and won't be"],
];

describe("errorGroup", () => {
  it.each(SAME)("puts together what differs in values only: %s", (first, ...others) => {
    for (const other of others) expect(errorGroup("t", other)).toBe(errorGroup("t", first));
  });

  it.each(DIFFERENT)("keeps apart %s and %s", (one, other) => {
    expect(errorGroup("t", one)).not.toBe(errorGroup("t", other));
  });

  it("keeps all the kinds of this list apart", () => {
    const kinds = SAME.map(([first]) => errorGroup("t", first!));
    expect(new Set(kinds).size).toBe(SAME.length);
  });

  it("is twelve hexadecimal digits, of the type and the kind of the error", () => {
    expect(errorGroup("order_created", "Error: no")).toMatch(/^[\da-f]{12}$/);
    expect(errorGroup("a", "Error: no")).not.toBe(errorGroup("b", "Error: no"));
  });

  it("stays the same: groups are stored", () => {
    expect(errorGroup("order_created", "Error: connect ECONNREFUSED 127.0.0.1:5672")).toBe("507a66bd8b39");
  });

  it("says of what kind an error is", () => {
    expect(kindOfError("Error: Request failed with status code 404 for order 4711 of 'anna'")).toBe(
      "Error: Request failed with status code 404 for order # of §",
    );
  });

  it.each([
    ["", ""],
    ["\u{e000}\u{e009}", "09"],
    ['"unterminated 12', '"unterminated #'],
  ])("takes any text: %j", (text, kind) => {
    expect(kindOfError(text)).toBe(kind);
  });

  it("takes long and hostile texts in no time", () => {
    const hostile = [
      "'".repeat(1e6),
      '"\\'.repeat(5e5),
      "#,".repeat(5e5),
      "1a".repeat(5e5),
      "a://".repeat(3e5),
      "@".repeat(1e6),
    ];
    const startedAt = performance.now();
    for (const text of hostile) expect(errorGroup("t", text)).toHaveLength(12);
    // Were the time to grow with the square of the length, it would be hours.
    expect(performance.now() - startedAt).toBeLessThan(15_000);
  });
});
