import fc from "fast-check";
import { uuidv7At } from "../../src/core/uuid.ts";

const DAY_MS = 86_400_000;

/** Texts that programs have tripped over. */
const KNOWN_TEXTS: readonly string[] = [
  "",
  " ",
  "\0",
  "a\0b",
  "\uFFFD",
  "\uD83D",
  "\u2028",
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "null",
  "undefined",
  "NaN",
  "-0",
  "-1",
  "1e999",
  "9223372036854775807",
  "9223372036854775808",
  "99999999999999999999",
  "2026-13-45",
  "+275760-09-13T00:00:00.000Z",
  "0000-00-00T00:00:00Z",
  "%",
  "%zz",
  "%00",
  "%E0%A4%A",
  "a b",
  "'; drop table message; --",
  "$1",
  "$$",
  "{}",
  "\\x00",
  "\\",
  '"',
  "🎉".repeat(50),
  "x".repeat(201),
  "x".repeat(1025),
  "x".repeat(9000),
  uuidv7At(0),
  uuidv7At(Date.now() - 400 * DAY_MS),
  uuidv7At(Date.now() + 400 * DAY_MS),
  uuidv7At(2 ** 48 - 1),
];

export const hostileText: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(...KNOWN_TEXTS),
  fc.string({ unit: "binary", maxLength: 30 }),
  fc.string({ unit: "grapheme", maxLength: 30 }),
  fc.string({ maxLength: 30 }),
);

/** Bytes that are no UTF-8, most of them. */
export const hostileBytes: fc.Arbitrary<Buffer> = fc
  .uint8Array({ minLength: 1, maxLength: 40 })
  .map((bytes) => Buffer.concat([Buffer.from([0xff]), bytes]));

const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);

/** Objects that take the place of headers, as JSON; among them those that stopped a consumer once. */
const KNOWN_HEADERS: readonly string[] = [
  '{"contentType":{"toString":1,"valueOf":1}}',
  '{"contentType":null}',
  '{"contentType":[]}',
  '{"contentType":5}',
  '{"contentType":""}',
  '{"contentType":"text/plain"}',
  '{"correlationId":{"toString":1}}',
  '{"correlationId":"\\u0000"}',
  '{"correlationId":"\\ud800"}',
  `{"correlationId":"${"c".repeat(5000)}"}`,
  '{"causationPath":"x"}',
  '{"causationPath":[["a"]]}',
  '{"causationPath":[["\\u0000","\\ud800"]]}',
  `{"causationPath":${JSON.stringify(Array.from({ length: 300 }, () => ["m".repeat(100), "t"]))}}`,
  '{"causationPath":{"length":1e9}}',
  '{"traceparent":[1]}',
  '{"idempotencyKey":{"toString":1}}',
  '{"__proto__":{"contentType":"text/plain"}}',
  '{"constructor":{"prototype":1},"toJSON":1,"toString":null,"valueOf":1}',
  '{"txboxOrigin":{"position":"x","createdAt":"y","key":{}}}',
  `{"deep":${nested(500)}}`,
  `{"deep":${nested(20_000)}}`,
  '{"n":1e999,"m":-0}',
  "{}",
  "[]",
  "null",
  '"text"',
  "{",
];

export const hostileHeaders: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(...KNOWN_HEADERS),
  fc.dictionary(hostileText, fc.jsonValue(), { maxKeys: 5 }).map((value) => JSON.stringify(value)),
);

export const hostileContentType: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    "application/json",
    "APPLICATION/JSON ; charset=x",
    "application/cloudevents+json",
    "text/plain",
    "text/html; charset=latin1",
    "application/octet-stream",
    "image/png",
    "json",
    "+json",
    "/",
  ),
  hostileText,
);

/** Bodies that all hold `mark`, so that each can be told from every other. */
export function hostileBody(mark: string): fc.Arbitrary<Buffer> {
  const json = (x: string): Buffer => Buffer.from(`{"mark":"${mark}","x":${x}}`);
  return fc.oneof(
    { weight: 5, arbitrary: fc.json({ maxDepth: 4 }).map(json) },
    {
      weight: 2,
      arbitrary: fc
        .constantFrom(
          "1e999",
          "-0",
          "12345678901234567890",
          '{"__proto__":{"a":1}}',
          '"\\ud800\\u0000"',
          '{"":{"$a.b":1}}',
        )
        .map(json),
    },
    { weight: 1, arbitrary: fc.constantFrom(100, 5000, 30_000).map((levels) => json(nested(levels))) },
    { weight: 2, arbitrary: fc.string({ unit: "binary" }).map((text) => Buffer.from(`${mark}${text}`)) },
    { weight: 2, arbitrary: hostileBytes.map((bytes) => Buffer.concat([bytes, Buffer.from(mark)])) },
    { weight: 1, arbitrary: fc.string().map((text) => Buffer.from(`{"mark":"${mark}",${text}`)) },
  );
}
