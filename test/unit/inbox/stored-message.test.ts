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
});
