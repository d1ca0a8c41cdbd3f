import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { encodePayload } from "../../../src/core/codec.ts";

class Order {
  id = "1";
  note?: string;
  total(): number {
    return 1;
  }
}

class Money {
  readonly #cents: number;
  readonly currency = "EUR";
  constructor(cents: number) {
    this.#cents = cents;
  }
  get cents(): number {
    return this.#cents;
  }
}

class Sealed {
  readonly #secret = 1;
  open(): number {
    return this.#secret;
  }
}

class Price {
  readonly amount = 5;
  toJSON(): string {
    return `${this.amount} EUR`;
  }
}

const throwing = {
  get price(): number {
    throw new Error("no price");
  },
};
const proxy = new Proxy(
  {},
  {
    ownKeys: () => {
      throw new Error("closed");
    },
  },
);
const transferred = new Uint8Array(4);
structuredClone(transferred, { transfer: [transferred.buffer] });

/** Each would be lost or changed by JSON.stringify, or throw an error that says nothing of the place. */
const REFUSED: [name: string, value: unknown][] = [
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
  ["a boxed NaN", Object(Number.NaN)],
  ["a function", () => 1],
  ["a class", Order],
  ["a symbol", Symbol("s")],
  ["a boxed symbol", Object(Symbol("s"))],
  ["a bigint", 1n],
  ["an invalid date", new Date("x")],
  ["an invalid date of another realm", runInNewContext("new Date(NaN)")],
  ["a Map", new Map([["a", 1]])],
  ["a Set", new Set([1])],
  ["a WeakMap", new WeakMap()],
  ["a Map with properties", Object.assign(new Map(), { a: 1 })],
  ["a Map of another realm", runInNewContext("new Map()")],
  ["a promise", Promise.resolve(1)],
  ["a regular expression", /a/],
  ["an Error", new Error("x")],
  ["an Error with properties", Object.assign(new Error("x"), { code: "E" })],
  ["an ArrayBuffer", new ArrayBuffer(1)],
  ["a DataView", new DataView(new ArrayBuffer(1))],
  ["a Float64Array", new Float64Array([1])],
  ["a Uint8Array inside", new Uint8Array([1])],
  ["a Blob", new Blob(["a"])],
  ["URLSearchParams", new URLSearchParams("a=1")],
  ["Headers", new Headers({ a: "1" })],
  ["FormData", new FormData()],
  ["an iterator", [1].values()],
  [
    "a generator",
    (function* () {
      yield 1;
    })(),
  ],
  ["an AbortSignal", new AbortController().signal],
  ["a class whose fields are private", new Sealed()],
  ["a class with a getter", new Money(5)],
  ["a subclass of one", new (class extends Money {})(5)],
  ["a property with a symbol as its name", { [Symbol("s")]: 1 }],
  ["an array with properties", Object.assign([1], { total: 1 })],
  ["a match of a regular expression", /a/.exec("a")],
  ["a toJSON that gives nothing", { toJSON: () => undefined }],
  ["a toJSON that gives NaN", { toJSON: () => Number.NaN }],
  [
    "a toJSON that throws",
    {
      toJSON: () => {
        throw new Error("x");
      },
    },
  ],
];

describe("what JSON would change is refused", () => {
  it.each(REFUSED)("%s", (_, value) => {
    const refusal = { code: "invalid_message", field: "payload", fix: expect.stringMatching(/\w/) };
    const at = (where: string) => ({ ...refusal, message: expect.stringMatching(where) });
    expect(() => encodePayload({ items: [0, 0, 0, { price: value }] }, undefined)).toThrow(
      expect.objectContaining(at("^payload\\.items\\[3\\]\\.price")),
    );
    expect(() => encodePayload({ "a b": [value] }, undefined)).toThrow(
      expect.objectContaining(at('^payload\\["a b"\\]\\[0\\]')),
    );
    expect(() => encodePayload([{ ok: [{}] }, value], undefined)).toThrow(
      expect.objectContaining(at("^payload\\[1\\]")),
    );
  });

  // Bytes alone are a payload.
  it.each(REFUSED.filter(([, value]) => !(value instanceof Uint8Array)))("%s as the whole payload", (_, value) => {
    const refusal = { code: "invalid_message", field: "payload", message: expect.stringMatching("^payload ") };
    expect(() => encodePayload(value, undefined)).toThrow(expect.objectContaining(refusal));
  });

  it("a hole and an undefined item, which would become null", () => {
    // eslint-disable-next-line no-sparse-arrays -- that is what is refused
    expect(() => encodePayload({ list: [1, , 2] }, undefined)).toThrow("payload.list[1] is undefined");
    expect(() => encodePayload([undefined], undefined)).toThrow("payload[0] is undefined");
  });

  it("a getter and a proxy that throw, by their path", () => {
    const refused = (value: unknown) => () => encodePayload(value, undefined);
    expect(refused({ a: [{ ok: 1 }, throwing] })).toThrow(
      "payload.a[1].price cannot be made into JSON: Error: no price",
    );
    expect(refused({ a: proxy })).toThrow("payload.a cannot be made into JSON: Error: closed");
    expect(refused({ a: proxy })).toThrow(expect.objectContaining({ code: "invalid_message", field: "payload" }));
  });

  it("text and bytes that would not arrive as they are", () => {
    expect(() => encodePayload("half \ud800", "text/plain")).toThrow("half of a surrogate pair");
    expect(() => encodePayload(transferred, undefined)).toThrow("transferred away");
  });
});

describe("what JSON keeps is taken", () => {
  it.each<[name: string, value: unknown, json: string]>([
    ["a date", new Date(0), '"1970-01-01T00:00:00.000Z"'],
    ["a class with public fields", new Order(), '{"id":"1"}'],
    ["a class with a toJSON", [new Price()], '["5 EUR"]'],
    ["a URL", new URL("http://a/b"), '"http://a/b"'],
    ["an optional property", { a: undefined, b: 1 }, '{"b":1}'],
    ["boxed values", [Object("a"), Object(1), Object(true)], '["a",1,true]'],
    ["an object without a prototype", Object.assign(Object.create(null) as object, { a: 1 }), '{"a":1}'],
    ["an object of another realm", runInNewContext("({ a: [1] })"), '{"a":[1]}'],
    [
      "names of prototypes",
      JSON.parse('{"__proto__":{"a":1},"constructor":2}'),
      '{"__proto__":{"a":1},"constructor":2}',
    ],
    ["half of a surrogate pair, which JSON escapes", "\ud800", '"\\ud800"'],
    ["a proxy", new Proxy({ a: 1 }, {}), '{"a":1}'],
    [
      "a getter of its own",
      {
        get a() {
          return 1;
        },
      },
      '{"a":1}',
    ],
    [
      "the same object twice",
      ((shared) => [shared, { shared }, shared])({ x: 1 }),
      '[{"x":1},{"shared":{"x":1}},{"x":1}]',
    ],
  ])("%s", (_, value, json) => {
    expect(encodePayload(value, undefined).body).toBe(json);
  });

  it("reads every property once", () => {
    let reads = 0;
    encodePayload(
      {
        get a() {
          return ++reads;
        },
      },
      undefined,
    );
    expect(reads).toBe(1);
  });
});
