import { expect, test } from "vitest";
import { jsonText, messageRecord } from "../../../src/cli/json-text.ts";

test("bigints become strings, times ISO 8601", () => {
  expect(jsonText({ n: 12n, at: new Date(0) })).toBe('{"n":"12","at":"1970-01-01T00:00:00.000Z"}');
});

test("a payload keeps its numbers as they were written", () => {
  const body = '{"id": 12345678901234567890, "price": 1.10,\n "list": [1, 2.0]}';
  expect(jsonText(messageRecord({ id: "m", headers: {}, body }))).toBe(
    '{"id":"m","headers":{},"payload":{"id":12345678901234567890,"price":1.10,"list":[1,2.0]}}',
  );
});

test("bytes are shown as base64", () => {
  expect(jsonText(messageRecord({ headers: {}, body: Uint8Array.of(1, 2, 255) }))).toBe(
    '{"headers":{},"bodyBase64":"AQL/"}',
  );
});
