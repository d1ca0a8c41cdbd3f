import assert from "node:assert/strict";
import type { IncomingMessage, Message } from "../../core/message.ts";
import { uuidv7 } from "../../core/uuid.ts";
import { HOSTILE_VALUES } from "../hostile-values.ts";

let position = 0n;

/** A message as a store hands it out; its payload is `n`. */
export function sample(stream: string, n: unknown, more: Partial<Message> = {}): Message {
  return {
    id: uuidv7(),
    position: ++position,
    stream,
    type: "sampled",
    key: "k",
    aggregateType: null,
    aggregateId: null,
    body: JSON.stringify(n),
    headers: { correlationId: "c-1" },
    createdAt: new Date(),
    ...more,
  };
}

/** One with everything that a message may carry. */
export function richSample(stream: string): Message {
  return sample(stream, null, {
    key: "Schlüssel 🔑/%s",
    type: "order_créé",
    aggregateType: "order",
    aggregateId: "o-世界-1",
    position: 9_007_199_254_740_993n,
    body: JSON.stringify({ text: 'Grüße, 世界 🎉 "q" \\ \u0001', n: 1.5, none: null, list: [1, [2]] }),
    headers: {
      correlationId: "c-ü",
      causationId: "019a0000-0000-7000-8000-ursache-ü",
      causationPath: [
        ["orders", "order_placed"],
        ["zahlung", "bezahlt_ü"],
      ],
      schemaVersion: 3,
      traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      tracestate: "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
      "X-Eigener Kopf": "Wert mit Ümlaut, 🎉 und\nZeilenende",
      nested: { deep: [true, null, "é"] },
      empty: "",
      Empty: "but for its case",
    },
    createdAt: new Date("2026-02-03T04:05:06.789Z"),
  });
}

/** Messages whose payloads and headers careless code changes on the way. */
export function hostileSamples(stream: string): Message[] {
  const values = Object.entries(HOSTILE_VALUES);
  const bodies = values.map(([name, value]) => sample(stream, value, { key: name }));
  const { "deep nesting": _, ...flat } = HOSTILE_VALUES;
  const lists = Object.fromEntries(
    ["__proto__", "constructor", "toString", "txbox-id", "ce_id"].map((name) => [name, ["x"]]),
  );
  const texts = Object.fromEntries(
    ["__proto__", "constructor", "valueOf", "hasOwnProperty"].map((name) => [name, name]),
  );
  return [
    ...bodies,
    ...[flat, lists, texts].map((headers) => sample(stream, null, { headers: { correlationId: "c", ...headers } })),
  ];
}

export function samples(stream: string, keys: readonly (string | null)[], each: number): Message[] {
  return Array.from({ length: each }, (_, n) => keys.map((key) => sample(stream, n, { key }))).flat();
}

/** What a consumer sees is what was published; brokers may give text as bytes. */
export function assertSameMessage(got: IncomingMessage | undefined, sent: Message): void {
  assert.ok(got !== undefined, `message ${sent.id} did not arrive`);
  const fields = (one: IncomingMessage): unknown[] => [
    one.id,
    one.position,
    one.stream,
    one.type,
    one.key ?? null,
    one.aggregateType ?? null,
    one.aggregateId ?? null,
    one.createdAt?.toISOString(),
  ];
  assert.deepEqual(fields(got), fields(sent));
  assert.deepEqual({ ...got.headers }, { ...sent.headers });
  assert.ok(sameBody(got.body, sent.body), `the body of ${sent.id} changed on the way`);
}

function sameBody(a: string | Uint8Array, b: string | Uint8Array): boolean {
  return Buffer.compare(Buffer.from(a as string), Buffer.from(b as string)) === 0;
}

export function idsOf(messages: readonly { readonly id?: string | undefined }[]): string[] {
  return messages.map(({ id }) => String(id));
}

/** The payloads of one key, in order. */
export function payloadsOf(messages: readonly IncomingMessage[], key: string | null): unknown[] {
  const mine = messages.filter((one) => (one.key ?? null) === key);
  return mine.map(({ body }) => JSON.parse(Buffer.from(body as string).toString()) as unknown);
}
