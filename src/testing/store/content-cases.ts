import assert from "node:assert/strict";
import { encodePayload } from "../../core/codec.ts";
import type { Headers, IncomingMessage, Message } from "../../core/message.ts";
import { uuidv7 } from "../../core/uuid.ts";
import { createInbox } from "../../inbox/inbox.ts";
import { HOSTILE_VALUES } from "../hostile-values.ts";
import { type Consumer, dead, joined, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "content";

function assertUnchanged(got: readonly Message[], headers: Headers): void {
  const names = Object.keys(HOSTILE_VALUES);
  assert.deepEqual(got.map(({ type }) => type).toSorted(), names.toSorted());
  for (const { type, body, headers: seen } of got) {
    assert.equal(body, JSON.stringify(HOSTILE_VALUES[type]), type);
    const { correlationId: _, ...own } = seen;
    assert.equal(JSON.stringify(own), JSON.stringify(headers), type);
  }
}

/** What a producer that knows nothing of txbox may send. */
const FOREIGN: readonly { readonly name: string; readonly body: string | Uint8Array; readonly contentType?: string }[] =
  [
    { name: "JSON with spaces", body: '{ "n" : 1.0 , "e": 1e2 }' },
    { name: "JSON as bytes", body: Buffer.from('{"ü":"🎉"}') },
    { name: "JSON with a byte order mark", body: Buffer.from('\ufeff{"n":1}') },
    { name: "numbers that JavaScript rounds", body: "[12345678901234567890,-0,0.10,1e400,1E5]" },
    { name: "a name twice", body: '{"a":1,"a":2}' },
    { name: "escapes that are not needed", body: '"\\u0041\\/\\u0000"' },
    { name: "a lone surrogate, escaped", body: '"\\ud800"' },
    { name: "a lone surrogate, as it is", body: '"\ud800"' },
    { name: "JSON nested far deeper than in real messages", body: `${"[".repeat(20_000)}1${"]".repeat(20_000)}` },
    { name: "text", body: "Grüße, 世界", contentType: "text/plain" },
    { name: "text as bytes", body: Buffer.from("Grüße"), contentType: "text/plain; charset=utf-8" },
    { name: "text that looks like JSON", body: '{"n":1}', contentType: "text/plain" },
    { name: "text with a lone surrogate", body: "a\ud800\0", contentType: "text/plain" },
    { name: "no text at all", body: "", contentType: "text/plain" },
    { name: "XML", body: Buffer.from("<a/>"), contentType: "application/xml" },
    { name: "bytes", body: Uint8Array.from({ length: 256 }, (_, i) => i), contentType: "application/octet-stream" },
    { name: "no bytes at all", body: new Uint8Array(0), contentType: "application/octet-stream" },
    { name: "a text that is said to be bytes", body: "abc", contentType: "application/octet-stream" },
    { name: "broken JSON", body: "{broken" },
    { name: "text that is no UTF-8", body: Buffer.from([0xff, 0xfe]), contentType: "text/plain" },
  ];

interface Seen {
  readonly payload: unknown;
  readonly headers: Headers;
}

/** Handles a message in either mode; what the handler saw, or the code of the refusal. */
function modes(context: StoreContext, consumer: Consumer) {
  const { store } = context;
  return async (mode: "inline" | "stored", given: IncomingMessage): Promise<Seen | string> => {
    let seen: Seen | undefined;
    const inbox = createInbox({ store, consumer: mode, mode });
    inbox.on("t", async (_, { payload, headers }) => void (seen = { payload: plain(payload), headers }));
    try {
      await inbox.handle(given);
    } catch (error) {
      return (error as { code: string }).code;
    }
    if (mode === "stored") {
      const results = await inbox.storedPublisher().publish(await consumer.take(1), new AbortController().signal);
      assert.deepEqual(results, [{ status: "published" }]);
    }
    assert.ok(seen !== undefined);
    return seen;
  };
}

/** Drivers give bytes in classes of their own. */
function plain(payload: unknown): unknown {
  return payload instanceof Uint8Array ? Array.from(payload) : payload;
}

/** What goes in comes out. */
export const contentCases: readonly StoreCase[] = [
  {
    role,
    name: "keeps every payload and header as it was given",
    async run(context) {
      const headers = JSON.parse(
        JSON.stringify({ ...HOSTILE_VALUES, "deep nesting": undefined, x: 1 }).replace(/^\{/, '{"__proto__":["h"],'),
      ) as Headers;
      const all = Object.entries(HOSTILE_VALUES);
      await enqueue(context, ...all.map(([type, payload]) => message(payload, { type, key: type, headers })));
      const consumer = await joined(context.store);
      const failed = new Set<string>();
      // Each is tried, parked and tried again.
      consumer.judge = ({ id }) => (failed.has(id) ? PUBLISHED : (failed.add(id), retry()));
      assertUnchanged(await consumer.take(all.length), headers);
    },
  },
  {
    role,
    name: "keeps them as dead letters, and shows them as they are",
    async run(context) {
      const all = Object.entries(HOSTILE_VALUES);
      const headers: Headers = JSON.parse('{"__proto__":1,"constructor":["h"]}') as Headers;
      await enqueue(context, ...all.map(([type, payload]) => message(payload, { type, key: type, headers })));
      const consumer = await joined(context.store, {}, { judge: () => dead() });
      await consumer.drain();
      assertUnchanged(await context.store.admin.dead({}), headers);
      for (const [type] of all) {
        const [shown] = await context.store.admin.find({ stream: "s", key: type });
        assert.equal(shown?.body, JSON.stringify(HOSTILE_VALUES[type]), type);
      }
      consumer.judge = () => PUBLISHED;
      assert.equal(await context.store.admin.requeue({ relay: "r" }), all.length);
      assertUnchanged(await consumer.take(all.length), headers);
    },
  },
  {
    role,
    name: "gives back JSON text, text and bytes to the letter",
    async run(context) {
      const texts = ["text/plain", "text/html; charset=utf-8"].map((contentType) => ({
        payload: "Grüße \0 \ufeff 世界",
        headers: { contentType },
      }));
      const bytes = [new Uint8Array(0), Uint8Array.from({ length: 256 }, (_, i) => i)].map((payload) => ({ payload }));
      const given = [...texts, ...bytes];
      await enqueue(context, ...given.map((more) => message(undefined, more)));
      const got = await (await joined(context.store)).take(given.length);
      for (const [i, { payload, ...more }] of given.entries()) {
        const { body } = encodePayload(payload, "headers" in more ? more.headers.contentType : undefined);
        assert.ok(Buffer.from(got[i]!.body as string).equals(Buffer.from(body as string)), `body ${i}`);
      }
    },
  },
  {
    role,
    name: "lets a stored inbox take what an inline one takes, and refuse what that refuses",
    async run(context) {
      const inMode = modes(context, await joined(context.store, { relay: "local", streams: ["inbox.stored"] }));
      for (const { name, body, contentType } of FOREIGN) {
        const headers: Headers = JSON.parse('{"__proto__":"h","own":["x"]}') as Headers;
        if (contentType !== undefined) headers.contentType = contentType;
        const given: IncomingMessage = { id: uuidv7(), type: "t", body, headers };
        const inline = await inMode("inline", given);
        const stored = await inMode("stored", given);
        if (typeof inline === "string" || typeof stored === "string") assert.equal(stored, inline, name);
        // Values this deep cannot be compared.
        else if (name.startsWith("JSON nested far")) assert.ok(Array.isArray(stored.payload), name);
        else assert.deepEqual(stored.payload, inline.payload, name);
        if (typeof inline === "string" || typeof stored === "string") continue;
        assert.equal(
          JSON.stringify({ ...stored.headers, correlationId: 0 }),
          JSON.stringify({ ...inline.headers, correlationId: 0 }),
          name,
        );
      }
    },
  },
];
