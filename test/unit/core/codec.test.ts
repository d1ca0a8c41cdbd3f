import { describe, expect, it } from "vitest";
import { decodePayload, encodePayload } from "../../../src/core/codec.ts";

describe("codec", () => {
  it.each([
    [{ a: [1, "ü", null] }, undefined],
    ["text", undefined],
    [null, undefined],
    [0, "application/json; charset=utf-8"],
    ["plain", "text/plain"],
    ["<a/>", "application/xml"],
    [{ a: 1 }, "application/cloudevents+json"],
  ])("brings %j with content type %s back", (payload, contentType) => {
    const encoded = encodePayload(payload, contentType);
    expect(encoded.bytes).toBe(Buffer.byteLength(encoded.body));
    expect(decodePayload(encoded.body, encoded.contentType)).toEqual(payload);
    // As a broker would deliver it.
    expect(decodePayload(Buffer.from(encoded.body), encoded.contentType)).toEqual(payload);
  });

  it("leaves bytes alone", () => {
    const bytes = new Uint8Array([0, 255]);
    const encoded = encodePayload(bytes, undefined);
    expect(encoded).toEqual({ body: bytes, bytes: 2, contentType: "application/octet-stream" });
    expect(decodePayload(encoded.body, encoded.contentType)).toBe(bytes);
    expect(decodePayload(bytes, "image/png")).toBe(bytes);
  });

  it.each([
    ["{", undefined],
    ["", undefined],
    [new Uint8Array([0xff]), "application/json"],
    [new Uint8Array([0xff]), "text/plain"],
  ])("calls %j as %s a permanent failure", (body, contentType) => {
    expect(() => decodePayload(body, contentType)).toThrow(
      expect.objectContaining({ code: "permanent", field: "payload" }),
    );
  });

  it("takes what JSON takes: dates, class instances, optional fields", () => {
    class Order {
      id = "1";
      note?: string;
      #secret = 1;
      total(): number {
        return this.#secret;
      }
    }
    expect(encodePayload({ at: new Date(0), order: new Order(), none: undefined }, undefined).body).toBe(
      '{"at":"1970-01-01T00:00:00.000Z","order":{"id":"1"}}',
    );
  });

  it("takes the same object twice when it is no cycle", () => {
    const shared = { x: 1 };
    expect(encodePayload([shared, { shared }, shared], undefined).body).toBe('[{"x":1},{"shared":{"x":1}},{"x":1}]');
  });
});
