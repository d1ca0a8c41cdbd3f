import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { messageIdOf } from "../../../src/inbox/message-id.ts";

const body = "{}";
const sha = (text: string | Buffer) => createHash("sha256").update(text).digest("hex");

describe("messageIdOf", () => {
  it("goes down the list", () => {
    const all = {
      id: "i",
      headers: { idempotencyKey: "k" },
      aggregateType: "o",
      aggregateId: "1",
      type: "t",
      position: 5n,
      body,
    };
    expect(messageIdOf(all)).toBe("i");
    expect(messageIdOf({ ...all, id: undefined })).toBe("k");
    expect(messageIdOf({ ...all, id: "", headers: {} })).toBe("o:1:t:5");
    for (const absent of ["aggregateType", "aggregateId", "position"] as const) {
      expect(messageIdOf({ ...all, id: undefined, headers: {}, [absent]: undefined })).toBe(sha("t:{}"));
    }
  });

  it("hashes routing key and body bytes", () => {
    expect(messageIdOf({ body, headers: {}, routingKey: "orders.created" })).toBe(sha("orders.created:{}"));
    const bytes = Buffer.from([0, 255]);
    expect(messageIdOf({ body: bytes, headers: {}, routingKey: "r" })).toBe(
      sha(Buffer.concat([Buffer.from("r:"), bytes])),
    );
    expect(messageIdOf({ body: "ü", headers: {} })).toBe(messageIdOf({ body: Buffer.from("ü"), headers: {} }));
  });

  it("hashes ids that no index could hold", () => {
    const long = "x".repeat(3000);
    expect(messageIdOf({ id: long, headers: {}, body })).toBe(sha(long));
    expect(messageIdOf({ id: "a\0b", headers: {}, body })).toBe(sha("a\0b"));
    expect(messageIdOf({ headers: { idempotencyKey: 17 }, body })).toBe(sha(":{}"));
  });
});
