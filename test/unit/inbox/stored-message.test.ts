import { describe, expect, it } from "vitest";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { fromStored, toStored } from "../../../src/inbox/stored-message.ts";

const stored = (key: unknown) =>
  toStored("c", "id", "t", { id: "id", type: "t", key, body: "{}", headers: {} } as IncomingMessage);
const seen = (key: unknown) => {
  const { id, type, key: storedKey, body, headers } = stored(key);
  return fromStored({ id, type, key: storedKey, body, headers: JSON.parse(headers) }).key;
};

describe("a stored message", () => {
  it("keeps its key", () => {
    expect(stored("k")).toMatchObject({ key: "k" });
    expect(seen("k")).toBe("k");
    expect(stored(undefined).key).toBeNull();
    expect(stored("").key).toBeNull();
  });

  it.each([
    ["too long for an index", "k".repeat(5000)],
    ["with NUL", "k\0"],
    ["that is no Unicode", "k\ud800"],
  ])("with a key %s has its hash for a key, the same each time", (_, key) => {
    const { key: hash, lane } = stored(key);
    expect(hash).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(stored(key)).toMatchObject({ key: hash, lane });
    expect(stored(`${key}x`).key).not.toBe(hash);
  });

  it("shows the handler a long key as it was sent", () => {
    const key = "kü".repeat(2000);
    expect(seen(key)).toBe(key);
  });

  it("tells apart the text and the bytes that its log keeps alike", () => {
    const seenBody = (body: string | Uint8Array, contentType: string) => {
      const kept = toStored("c", "id", "t", { body, headers: { contentType } });
      expect(kept.body).toBeInstanceOf(Uint8Array);
      return fromStored({ body: kept.body, headers: JSON.parse(kept.headers) }).body;
    };
    expect(seenBody("Grüße", "text/plain")).toBe("Grüße");
    expect(seenBody("half \ud800", "text/plain")).toBe("half \ud800");
    expect(seenBody(Buffer.from("Grüße"), "text/plain")).toEqual(Buffer.from("Grüße"));
  });

  it("takes headers that JSON cannot hold, or refuses them for good", () => {
    const message = (headers: object): IncomingMessage => ({ body: "1", headers: { ...headers } });
    expect(JSON.parse(toStored("c", "id", "t", message({ n: 2n ** 60n })).headers)).toMatchObject({
      n: "1152921504606846976",
    });
    const cycle: Record<string, unknown> = {};
    cycle["self"] = cycle;
    expect(() => toStored("c", "id", "t", message({ cycle }))).toThrow(expect.objectContaining({ code: "permanent" }));
  });
});
