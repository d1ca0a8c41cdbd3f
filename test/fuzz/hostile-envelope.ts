import fc from "fast-check";
import { encodeEnvelope } from "../../src/adapter/envelope.ts";
import type { Transport } from "../../src/adapter/transport.ts";
import { uuidv7 } from "../../src/core/uuid.ts";
import { hostileBody, hostileBytes, hostileContentType, hostileHeaders, hostileText } from "./hostile-text.ts";

/** A field as a hostile producer sends it: text, bytes, or where the broker has them a number, a list, a table. */
export type FieldValue = unknown;

export interface HostileEnvelope {
  readonly n: number;
  readonly body: Buffer;
  readonly fields: readonly (readonly [name: string, value: FieldValue])[];
  readonly key: string | undefined;
  /** Headers that a handler must see as they were sent. */
  readonly plain: ReadonlyMap<string, string>;
}

/** What is in every body, and in nothing else. */
export const markOf = (n: number): string => `~n${n}~`;

export function numberIn(body: Uint8Array | string): number | undefined {
  const text = typeof body === "string" ? body : Buffer.from(body).toString("latin1");
  const found = /~n(\d+)~/.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}

/** Handlers are there for these. */
export const TYPES: readonly string[] = ["order_created", "order_paid", "toString", "ü", "good"];

const PLAIN_NAMES: readonly string[] = ["u-tenant", "u-x", "__proto__", "constructor", "toString", "valueOf", "length"];

export interface EnvelopeOptions {
  readonly transport: Transport;
  /** The broker carries numbers, lists and tables in headers. */
  readonly tables: boolean;
}

/** Envelopes of three kinds: ours and CloudEvents with fields that were changed, and those of producers of neither. */
export function hostileEnvelope(n: number, { transport, tables }: EnvelopeOptions): fc.Arbitrary<HostileEnvelope> {
  const [prefix] = transport.cloudEventPrefixes;
  const value: fc.Arbitrary<FieldValue> = fc.oneof(
    { weight: 6, arbitrary: hostileText },
    { weight: 2, arbitrary: hostileBytes },
    ...(tables ? [{ weight: 3, arbitrary: hostileTable }] : []),
  );
  const change = fc.oneof(
    fc.tuple(
      fc.constant("txbox-headers"),
      fc.oneof({ weight: 5, arbitrary: hostileHeaders }, { weight: 1, arbitrary: value }),
    ),
    fc.tuple(
      fc.constant("content-type"),
      fc.oneof({ weight: 5, arbitrary: hostileContentType }, { weight: 1, arbitrary: value }),
    ),
    fc.tuple(
      fc
        .constantFrom("id", "type", "stream", "position", "created-at", "key", "aggregate-type", "aggregate-id")
        .map((name) => `txbox-${name}`),
      fc.option(value, { nil: undefined }),
    ),
    fc.tuple(
      fc
        .constantFrom(
          "specversion",
          "id",
          "source",
          "type",
          "time",
          "sequence",
          "stream",
          "partitionkey",
          "traceparent",
        )
        .map((name) => prefix + name),
      fc.option(value, { nil: undefined }),
    ),
    fc.tuple(fc.constantFrom("correlation-id", "traceparent", "contentType", "causationPath"), value),
    fc.tuple(
      hostileText.filter((text) => text !== ""),
      value,
    ),
  );
  return fc
    .record({
      kind: fc.constantFrom("native", "cloudevents", "foreign"),
      type: fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...TYPES) }, { weight: 1, arbitrary: hostileText }),
      key: fc.oneof(fc.constant(undefined), fc.constant("good"), hostileText),
      body: hostileBody(markOf(n)),
      changes: fc.array(change, { maxLength: 3 }),
      plain: fc.dictionary(fc.constantFrom(...PLAIN_NAMES), fc.stringMatching(/^[a-z]{1,20}$/), {
        maxKeys: 3,
        noNullPrototype: false,
      }),
      crowd: fc.oneof(
        { weight: 40, arbitrary: fc.constant(0) },
        { weight: 1, arbitrary: fc.integer({ min: 500, max: 2500 }) },
      ),
    })
    .map(({ kind, type, key, body, changes, plain, crowd }) => {
      const fields = new Map<string, FieldValue>();
      if (kind !== "foreign") {
        const message = {
          id: uuidv7(),
          position: BigInt(n),
          stream: "s",
          type,
          key: key === undefined || key === "" ? null : key,
          aggregateType: "order",
          aggregateId: `o-${n}`,
          body,
          headers: {},
          createdAt: new Date(),
        };
        for (const [name, text] of Object.entries(encodeEnvelope(message, kind, transport))) fields.set(name, text);
      }
      for (const [name, changed] of changes) {
        if (changed === undefined) fields.delete(name);
        else fields.set(name, isId(name) ? unique(changed, n) : changed);
      }
      for (let i = 0; i < crowd; i++) fields.set(`crowd-${i}`, "x");
      for (const [name, text] of Object.entries(plain)) fields.set(name, text);
      return { n, body, fields: [...fields], key: key === "" ? undefined : key, plain: expected(plain, fields) };
    });
}

const hostileTable: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(0, 1.5, 2 ** 40, true, null, [], {}, ["a", 1, { b: null }], { toString: 1, valueOf: 1 }),
  fc.dictionary(fc.string({ maxLength: 5 }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3, noNullPrototype: true }),
);

function isId(name: string): boolean {
  return /id$/i.test(name);
}

/** A repeat of an id is rightly dropped, so every id is made another one. */
function unique(value: FieldValue, n: number): FieldValue {
  if (typeof value === "string") return `${value}-${n}`;
  return Buffer.isBuffer(value) ? Buffer.concat([value, Buffer.from(`-${n}`)]) : value;
}

/** A header of ours that came as JSON wins over a plain one of the same name. */
function expected(
  plain: Readonly<Record<string, string>>,
  fields: ReadonlyMap<string, FieldValue>,
): Map<string, string> {
  const others = fields.get("txbox-headers");
  const text = typeof others === "string" ? others : "";
  return new Map(Object.entries(plain).filter(([name]) => !text.includes(name)));
}
