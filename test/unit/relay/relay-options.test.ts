import { describe, expect, it } from "vitest";
import { createInbox, createRelay, publishEach } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { describeError } from "../../../src/core/errors.ts";
import type { RelayOptions } from "../../../src/relay/relay-options.ts";

const store = { queue: { join: () => undefined } } as unknown as RelayOptions["store"];
const publisher = publishEach(async () => undefined);

/** As from JavaScript, or from a file of configuration. */
const relayWith = (options: object) => () => createRelay({ store, name: "r", publisher, ...options });

describe("what types would refuse is refused with its name and what to do", () => {
  it.each<[string, () => unknown, string, RegExp]>([
    ["streams", relayWith({ streams: "orders" }), "streams", /\["orders"\]/],
    ["unordered", relayWith({ unordered: true }), "unordered", /\["orders"\]/],
    ["unordered as text", relayWith({ unordered: "s" }), "unordered", /\["orders"\]/],
    ["onEvent", relayWith({ onEvent: "x" }), "onEvent", /\(event\) =>/],
    ["maintenance", relayWith({ maintenance: "no" }), "maintenance", /true or false/],
    ["publisher", relayWith({ publisher: async () => undefined }), "publisher", /publishEach/],
    ["name", relayWith({ name: undefined }), "name", /for example/],
    ["publishEach", () => publishEach(undefined as never), "publish", /async \(message, signal\) =>/],
  ])("%s", (_, create, field, fix) => {
    expect(create).toThrow(expect.objectContaining({ code: "invalid_option", field, fix: expect.stringMatching(fix) }));
  });

  it.each([undefined, null, "postgres://localhost/shop"])("a store of %s", (options) => {
    expect(() => createPostgresStore(options as never)).toThrow(/takes an object of options.*client/);
  });

  it.each([
    [undefined, "body"],
    [{ id: "m", type: "t", headers: {} }, "body"],
    [{ id: "m", type: "t", body: { a: 1 }, headers: {} }, "body"],
    [{ id: "m", type: "t", body: "{}" }, "headers"],
  ])("a message of %o", async (message, field) => {
    const ledger = { receive: () => Promise.reject(new Error("not reached")) };
    const inbox = createInbox({ store: { ledger, writer: {} } as never, consumer: "c" }).on("t", async () => undefined);
    await expect(inbox.handle(message as never)).rejects.toMatchObject({ code: "invalid_message", field });
  });
});

describe("the text of an error", () => {
  it("says why, when only its cause knows", () => {
    const refused = Object.assign(new AggregateError([]), { code: "ECONNREFUSED" });
    expect(describeError(new TypeError("fetch failed", { cause: refused }))).toBe(
      "TypeError: fetch failed (ECONNREFUSED)",
    );
    const named = new Error("getaddrinfo ENOTFOUND nowhere");
    expect(describeError(new TypeError("fetch failed", { cause: named }))).toBe(
      "TypeError: fetch failed (getaddrinfo ENOTFOUND nowhere)",
    );
  });

  it("says it once", () => {
    const cause = new Error("out of paper");
    expect(describeError(new Error(`printing: ${cause.message}`, { cause }))).toBe("Error: printing: out of paper");
  });
});
