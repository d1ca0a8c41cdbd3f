import { describe, expect, it } from "vitest";
import { ReusedHeaders } from "../../../src/brokers/rabbitmq/reused-headers.ts";

type Headers = Record<string, unknown>;

/** As amqplib does it: they become the prototype of another object, and are read through that. */
function encode(headers: Headers): Headers {
  const inherited = Object.create(headers) as Headers;
  const read: Headers = {};
  for (const name in inherited) read[name] = inherited[name];
  return read;
}

function sent(reused: ReusedHeaders, headers: Headers, publish = encode): Headers {
  const result = publish(reused.use(headers));
  reused.release();
  return result;
}

describe("ReusedHeaders", () => {
  it("gives every message its own headers, however they differ", () => {
    const reused = new ReusedHeaders();
    const messages: Headers[] = [
      { id: "1", key: "a" },
      { id: "2", key: "b" },
      { id: "3" },
      { id: "4", key: "c", note: "x" },
      { id: "5", note: "y", key: "d" },
      { key: "e" },
      {},
      { id: "6", key: undefined },
    ];
    for (const headers of [...messages, ...messages]) expect(sent(reused, headers)).toEqual(headers);
  });

  it("uses one object for those that are alike", () => {
    const reused = new ReusedHeaders();
    const objects = new Set<Headers>();
    for (let n = 0; n < 10; n++) {
      const headers = reused.use({ id: String(n), key: "k" });
      encode(headers);
      reused.release();
      objects.add(headers);
    }
    expect(objects.size).toBeLessThan(4);
  });

  it("never shares with a client that reads them later", () => {
    const reused = new ReusedHeaders();
    const kept = Array.from({ length: 10 }, (_, n) => sent(reused, { id: String(n) }, (headers) => headers));
    expect(kept.map(({ id }) => id)).toEqual(kept.map((_, n) => String(n)));
  });

  it("gives nothing that was added on the way to another message", () => {
    const reused = new ReusedHeaders();
    const traced = (headers: Headers): Headers => {
      headers["traceparent"] ??= "00-1";
      return encode(headers);
    };
    expect(sent(reused, { id: "1" }, traced)).toEqual({ id: "1", traceparent: "00-1" });
    expect(sent(reused, { id: "2" }, traced)).toEqual({ id: "2", traceparent: "00-1" });
    for (const id of ["3", "4", "5"]) expect(sent(reused, { id })).toEqual({ id });
  });

  it("never shares what is read at once but encoded later", () => {
    const reused = new ReusedHeaders();
    const kept = Array.from({ length: 10 }, (_, n) =>
      sent(reused, { id: String(n) }, (headers) => {
        JSON.stringify(headers);
        return n < 3 ? encode(headers) : headers;
      }),
    );
    expect(kept.map(({ id }) => id)).toEqual(kept.map((_, n) => String(n)));
  });

  it("lets every header be written to, and keeps nothing of that", () => {
    const reused = new ReusedHeaders();
    const moved = (headers: Headers): Headers => {
      headers["id"] = `x${String(headers["id"])}`;
      headers["moved"] = headers["key"];
      delete headers["key"];
      return encode(headers);
    };
    for (const id of ["1", "2", "3"]) {
      expect(sent(reused, { id, key: id }, moved)).toEqual({ id: `x${id}`, moved: id });
      expect(sent(reused, { id, key: id })).toEqual({ id, key: id });
    }
  });
});
