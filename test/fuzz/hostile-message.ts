import fc from "fast-check";
import { hostileBytes, hostileContentType, hostileText } from "./hostile-text.ts";

const throws = (): never => {
  throw new Error("a getter that throws");
};

class WithGetter {
  readonly a = 1;
  get b(): number {
    return 2;
  }
}

/** Values that JSON changes, drops or refuses, each alone. */
const NOT_JSON: readonly (() => unknown)[] = [
  () => Number.NaN,
  () => Number.POSITIVE_INFINITY,
  () => 1n,
  () => Symbol("s"),
  () => throws,
  () => new Date(Number.NaN),
  () => new Map([["a", 1]]),
  () => new Set([1]),
  () => new Float32Array(2),
  () => new DataView(new ArrayBuffer(2)),
  () => new Blob(["a"]),
  () => new URLSearchParams("a=1"),
  () => Promise.resolve(1),
  () => /x/,
  () => new Error("x"),
  () => new WithGetter(),
  () => Object.defineProperty({}, "a", { enumerable: true, get: throws }),
  () => new Proxy({}, { ownKeys: throws }),
  () => new Proxy([], { get: throws }),
  () => ({ toJSON: throws }),
  () => ({ toJSON: () => undefined }),
  () => [undefined],
  () => Object.assign([1], { b: 2 }),
  () => {
    const cycle: Record<string, unknown> = {};
    cycle["self"] = { cycle };
    return cycle;
  },
];

const odd = fc.constantFrom(...NOT_JSON).map((make) => make());
const keyName = fc.oneof(
  fc.constantFrom("__proto__", "$set", "a.b", "", "_bsontype", "$where", "_id", "toJSON"),
  hostileText,
);

/** JSON.parse of V8 13.6 may read a name with an escape wrongly. In headers, which txbox parses, there are none. */
const escapedName = (name: string): boolean => JSON.stringify(name) !== `"${name}"`;
const headerName = keyName.filter((name) => !escapedName(name) && name !== "toJSON");
const headerValue: fc.Arbitrary<unknown> = fc.oneof(
  hostileText,
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.array(fc.oneof(hostileText, fc.integer(), fc.constant(null)), { maxLength: 3 }),
  fc.array(fc.tuple(headerName, hostileText), { maxLength: 3 }).map((entries) => Object.fromEntries(entries)),
);

/** JSON values with names and texts that databases treat in their own way. */
const plainValue: fc.Arbitrary<unknown> = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: false },
    fc.oneof(
      hostileText,
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer(),
      fc.constantFrom<unknown>(null, true, 2 ** 53, -(2 ** 63), 1e308, 5e-324, "\u0000", "\ud800", "\udc00x"),
    ),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.array(fc.tuple(keyName, tie("value")), { maxLength: 4 }).map((entries) => Object.fromEntries(entries)),
  ),
})).value;

const deep = fc.constantFrom(50, 70, 150, 990, 1100, 20_000).map((levels) => {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = i % 2 === 0 ? [value] : { a: value };
  return value;
});

const payload: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 30, arbitrary: plainValue },
  { weight: 2, arbitrary: hostileBytes },
  { weight: 1, arbitrary: deep },
  { weight: 2, arbitrary: odd },
  { weight: 1, arbitrary: odd.map((value) => ({ items: [1, { value }] })) },
  { weight: 1, arbitrary: fc.constantFrom(undefined, new Date(0), new Uint8Array(0), "", "x".repeat(200_000)) },
);

const text = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom("orders", "k", "ü🎉") },
  { weight: 1, arbitrary: hostileText },
);
const field = (of: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 40, arbitrary: of },
    { weight: 1, arbitrary: odd },
    { weight: 1, arbitrary: fc.constantFrom(null, 5, {}, []) },
  );

const headers: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 10, arbitrary: fc.constant(undefined) },
  {
    weight: 6,
    arbitrary: fc
      .record(
        {
          contentType: field(
            fc.oneof(
              { weight: 3, arbitrary: fc.constant("application/json") },
              { weight: 1, arbitrary: hostileContentType },
            ),
          ),
          correlationId: field(text),
          traceparent: field(text),
          causationPath: fc.oneof(
            { weight: 5, arbitrary: fc.constant([["a", "b"]]) },
            { weight: 1, arbitrary: plainValue },
          ),
          schemaVersion: headerValue,
          tenant: headerValue,
        },
        { requiredKeys: [] },
      )
      .chain((known) =>
        fc
          .array(fc.tuple(headerName, headerValue), { maxLength: 2 })
          .map((more) => Object.fromEntries([...more, ...Object.entries(known)])),
      ),
  },
  { weight: 1, arbitrary: odd },
);

/** What a program may hand to `enqueue` by mistake, or because an attacker designed it. */
export const hostileMessage: fc.Arbitrary<Record<string, unknown>> = fc.record(
  {
    stream: field(text),
    type: field(text),
    payload,
    headers,
    key: field(text),
    aggregateType: field(text),
    aggregateId: field(text),
    id: fc.oneof({ weight: 3, arbitrary: fc.uuid() }, { weight: 1, arbitrary: field(hostileText) }),
    deliverAt: fc.oneof(
      { weight: 3, arbitrary: fc.constant(new Date(0)) },
      {
        weight: 1,
        arbitrary: field(
          fc.constantFrom(
            new Date(0),
            new Date(-8.64e15),
            new Date(8.64e15),
            new Date(Date.UTC(9999, 0)),
            new Date(Number.NaN),
          ),
        ),
      },
    ),
  },
  { requiredKeys: ["stream", "type", "payload"] },
);
