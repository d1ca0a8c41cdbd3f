import assert from "node:assert/strict";
import type { PublisherCase, SubscriberCase } from "./broker-context.ts";
import { assertAllPublished } from "./publisher-cases.ts";
import { assertSameMessage, sample } from "./sample-message.ts";
import { recorder } from "./subscriber-cases.ts";

const never = (): AbortSignal => new AbortController().signal;
const text = (body: string | Uint8Array): string => Buffer.from(body as string).toString();

/** Events of a producer that knows nothing of txbox, as one JSON document each. */
const event = { specversion: "1.0", id: "e-1", source: "/shop", type: "order_créé", time: "2026-02-03T04:05:06Z" };
const base64 = Buffer.from([0xff, 0x00, 0xfe]).toString("base64");

export const publisherCloudEventCases: readonly PublisherCase[] = [
  {
    role: "publisher",
    name: "names the content type of every CloudEvent, and brings back what the message said itself",
    needs: ["cloudEvents"],
    async run({ cloudEvents, stream, arrived, contentTypes }) {
      const types = [undefined, "application/json", "text/plain; charset=utf-8"];
      const batch = types.map((contentType, n) =>
        sample(stream, n, { headers: contentType === undefined ? {} : { contentType } }),
      );
      assertAllPublished((await cloudEvents?.publish(batch, never())) ?? [], 3);
      assert.deepEqual(await contentTypes?.(3), ["application/json", "application/json", "text/plain; charset=utf-8"]);
      for (const [i, message] of (await arrived(3)).entries())
        assertSameMessage(message, batch[i] ?? (message as never));
    },
  },
];

export const subscriberCloudEventCases: readonly SubscriberCase[] = [
  {
    role: "subscriber",
    name: "unpacks CloudEvents that others send as one document",
    needs: ["foreign"],
    async run({ subscriber, sendForeign }) {
      const { got, handle, until } = recorder();
      await subscriber().start("consumer", handle);
      const type = { "content-type": "application/cloudevents+json; charset=UTF-8", tenant: "t" };
      const events = [
        { ...event, data: { total: "12 €" }, partitionkey: "k", traceparent: "00-1-2-03" },
        { ...event, id: "e-2", datacontenttype: "text/plain", data: "Grüße" },
        { ...event, id: "e-3", datacontenttype: "application/json", data: "Grüße" },
        { ...event, id: "e-4", datacontenttype: "image/png", data_base64: base64 },
        { ...event, id: "e-5" },
      ];
      for (const one of events) await sendForeign?.(Buffer.from(JSON.stringify(one)), type);
      await until(events.length);
      const by = (id: string) => got.find((one) => one.id === `/shop#${id}`) ?? assert.fail(`${id} did not come`);
      const first = by("e-1");
      assert.deepEqual([first.type, first.key, text(first.body)], [event.type, "k", '{"total":"12 €"}']);
      assert.equal(first.createdAt?.getTime(), Date.parse(event.time));
      assert.deepEqual(first.headers, { tenant: "t", traceparent: "00-1-2-03" });
      assert.deepEqual([text(by("e-2").body), by("e-2").headers.contentType], ["Grüße", "text/plain"]);
      assert.deepEqual([text(by("e-3").body), by("e-3").headers.contentType], ['"Grüße"', "application/json"]);
      assert.equal(Buffer.from(by("e-4").body as Uint8Array).toString("base64"), base64);
      assert.equal(text(by("e-5").body), "null");
    },
  },
  {
    role: "subscriber",
    name: "puts aside what says that it is a CloudEvent in one document, and is none",
    needs: ["foreign", "deadLetters"],
    async run({ subscriber, sendForeign, deadLetters }) {
      const { got, handle } = recorder();
      await subscriber().start("consumer", handle);
      const type = { "content-type": "application/cloudevents+json" };
      for (const body of ["{", "[]", '{"specversion":"1.0"}']) await sendForeign?.(Buffer.from(body), type);
      const aside = (await deadLetters?.(3)) ?? [];
      for (const { headers } of aside) assert.match(String(headers["dead-error"]), /should be a CloudEvent/);
      assert.equal(got.length, 0);
    },
  },
];
