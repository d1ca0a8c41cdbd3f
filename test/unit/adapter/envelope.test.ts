import { describe, expect, test } from "vitest";
import { decodeEnvelope, encodeEnvelope } from "../../../src/adapter/envelope.ts";
import type { Transport } from "../../../src/adapter/transport.ts";
import { assertSameMessage, hostileSamples, richSample, sample } from "../../../src/testing/broker/sample-message.ts";

const kafka: Transport = { cloudEventPrefixes: ["ce_"], asciiOnly: false };
const nats: Transport = { cloudEventPrefixes: ["ce-"], asciiOnly: true, reserved: /^Nats-/i };
const messages = {
  rich: richSample("orders"),
  bare: sample("orders", 1, { key: null, headers: {} }),
  inherited: sample("orders", 1, { headers: { constructor: "of nobody", valueOf: "nothing" } }),
  ...Object.fromEntries(hostileSamples("orders").map((message, i) => [`hostile (${i + 1})`, message])),
  percent: sample("100%/ü", 1, { key: "a%20b \t%zz", type: '"q" é' }),
};

describe.each([
  ["native", kafka],
  ["native", nats],
  ["cloudevents", kafka],
  ["cloudevents", nats],
] as const)("the %s envelope over %o", (format, transport) => {
  test.each(Object.entries(messages))("carries a %s message both ways", (_, message) => {
    const fields = encodeEnvelope(message, format, transport);
    assertSameMessage(decodeEnvelope(fields, message.body, transport), message);
    const sendable = transport.asciiOnly ? /^[\x20-\x7e]*$/ : /^[^\0]*$/;
    for (const value of Object.values(fields)) expect(value).toMatch(sendable);
    for (const name of Object.keys(fields)) expect(name).toMatch(/^[\w.-]+$/);
  });
});

describe("native fields", () => {
  test("have names that others can read, and headers under their own", () => {
    const message = sample("orders", 1, { id: "m-1", key: "k", headers: { tenant: "t", correlationId: "c", n: 1 } });
    expect(encodeEnvelope(message, "native", kafka)).toMatchObject({
      "txbox-id": "m-1",
      "txbox-key": "k",
      "correlation-id": "c",
      tenant: "t",
      "txbox-headers": '{"n":1}',
    });
  });

  test("no user header takes a name that means something to txbox or the broker", () => {
    const headers = { "Nats-Msg-Id": "a", "txbox-id": "b", ce_id: "c", "content-type": "d" };
    const fields = encodeEnvelope(sample("orders", 1, { id: "m-1", headers }), "native", nats);
    expect(Object.keys(fields).filter((name) => name in headers)).toEqual(["txbox-id"]);
    expect(fields["txbox-id"]).toBe("m-1");
    expect(decodeEnvelope(fields, "1", nats).headers).toEqual(headers);
  });

  test.each([
    ["txbox-position", "12x"],
    ["txbox-created-at", "yesterday"],
    ["txbox-headers", "{"],
    ["txbox-headers", "[]"],
    ["txbox-headers", `{"a":${"[".repeat(20_000)}${"]".repeat(20_000)}}`],
    ["txbox-headers", Buffer.from([0xff])],
    ["txbox-id", 5],
    ["txbox-id", Buffer.from([0xff])],
    ["txbox-type", { toString: 1 }],
  ])("a broken %s is a permanent error that names it", (name, value) => {
    const fields = { ...encodeEnvelope(messages.bare, "native", kafka), [name]: value };
    expect(() => decodeEnvelope(fields, "", kafka)).toThrow(
      expect.objectContaining({ code: "permanent", field: name }),
    );
  });
});

describe("what others send", () => {
  test("a CloudEvent of another producer: its id counts within its source", () => {
    const fields = {
      ce_specversion: "1.0",
      ce_id: "1",
      ce_source: "/shop",
      ce_type: "sold",
      ce_sequence: "x7",
      tenant: "t",
    };
    expect(decodeEnvelope(fields, "{}", kafka)).toMatchObject({
      id: "/shop#1",
      type: "sold",
      position: undefined,
      headers: { tenant: "t" },
    });
  });

  test("names of prototypes are names like others, in both directions", () => {
    const fields = Object.assign(Object.create(null) as Record<string, unknown>, { constructor: "c", toString: "t" });
    Object.defineProperty(fields, "__proto__", { value: "p", enumerable: true });
    const { headers } = decodeEnvelope(fields, "x", kafka);
    expect(Object.entries(headers)).toEqual(Object.entries(fields));
    const sent = JSON.parse('{"__proto__":{"contentType":"text/plain"},"a":1}') as Record<string, unknown>;
    const opened = decodeEnvelope(encodeEnvelope(sample("orders", 1, { headers: sent }), "native", kafka), "x", kafka);
    expect(JSON.stringify(opened.headers)).toBe(JSON.stringify(sent));
    expect(opened.headers.contentType).toBeUndefined();
  });

  test("an id that the client could not read is refused, so that two do not become one", () => {
    for (const fields of [
      { "ce-specversion": "1.0", "ce-id": "\uFFFD" },
      { "ce-specversion": "1.0", "ce-id": 5 },
    ]) {
      expect(() => decodeEnvelope(fields, "x", nats)).toThrow(
        expect.objectContaining({ code: "permanent", field: "ce-id" }),
      );
    }
  });

  test("a message of an unknown sender keeps its headers and has no id", () => {
    const message = decodeEnvelope({ tenant: "t", "Content-Type": "text/plain" }, "x", kafka);
    expect(message.id).toBeUndefined();
    expect(message.headers).toEqual({ tenant: "t", contentType: "text/plain" });
  });
});

describe("CloudEvents in one document", () => {
  const type = { "content-type": "application/cloudevents+json" };
  const document = JSON.stringify({ specversion: "1.0", id: "1", source: "/s", type: "t", stream: "s", data: 1 });

  test("are unpacked only when they came as such", () => {
    expect(decodeEnvelope(type, document, kafka)).toMatchObject({ type: "t", body: "1", headers: {} });
    const payload = sample("orders", 1, { body: document, headers: { contentType: type["content-type"] } });
    for (const format of ["native", "cloudevents"] as const) {
      assertSameMessage(decodeEnvelope(encodeEnvelope(payload, format, kafka), document, kafka), payload);
    }
  });

  test.each([
    ["no JSON", "{"],
    ["null", "null"],
    ["no id", { id: undefined }],
    ["an id that is no text", { id: 5 }],
    ["a key that is no text", { partitionkey: { a: 1 } }],
    ["a content type that is no text", { datacontenttype: ["text/plain"] }],
    ["bytes that are no text", { data_base64: 5 }],
    ["data that is nested too deep to be written", `${document.slice(0, -2)}${"[".repeat(1e5)}${"]".repeat(1e5)}}`],
  ])("with %s are the fault of the message", (_, change) => {
    const broken = typeof change === "string" ? change : JSON.stringify({ ...JSON.parse(document), ...change });
    expect(() => decodeEnvelope(type, broken, kafka)).toThrow(expect.objectContaining({ code: "permanent" }));
  });

  test("with an attribute that is null or named as what every object has are read as without it", () => {
    const odd = `${document.slice(0, -1)},"partitionkey":null,"__proto__":"x","constructor":{},"data_base64":null}`;
    expect(decodeEnvelope(type, odd, kafka)).toMatchObject({ id: "1", key: null, body: "1", headers: {} });
  });

  test("a content type that cannot be a header does not become one", () => {
    const message = sample("orders", 1, { headers: { contentType: "text/plain\r\nNats-Rollup: all" } });
    const fields = encodeEnvelope(message, "cloudevents", nats);
    expect(fields["content-type"]).toBe("application/octet-stream");
    assertSameMessage(decodeEnvelope(fields, message.body, nats), message);
  });
});
