import { describe, expect, test } from "vitest";
import { txboxFastify } from "../../../src/frameworks/fastify/index.ts";
import { OnMessage } from "../../../src/frameworks/nestjs/on-message.ts";

describe("@OnMessage", () => {
  test.each([
    [[], /@OnMessage needs a message type, got undefined/],
    [[""], /got an empty string/],
    [[{ type: "a" }], /got an object/],
    [["a", ""], /@OnMessage\("a"\): the consumer is an empty string/],
    [["a", 5], /the consumer is 5/],
  ])("%j is refused where it stands", (args, says) => {
    const mark = () => (OnMessage as (...args: unknown[]) => unknown)(...args);
    expect(mark).toThrow(expect.objectContaining({ code: "invalid_option", message: expect.stringMatching(says) }));
    expect(mark).toThrow('Write @OnMessage("order_created")');
  });
});

describe("the plugin for Fastify", () => {
  test.each([
    [null, /inboxes\[1\] is null\. Each is/],
    [undefined, /inboxes\[1\] is undefined/],
    ["payments", /inboxes\[1\] is a string/],
    [{}, /the inbox undefined needs handlers/],
  ])("names an inbox that is %j", async (inbox, says) => {
    const first = { consumer: "a", subscriber: {}, handlers: {} };
    const fastify = { hasDecorator: () => false };
    const registered = txboxFastify(fastify as never, { store: {}, inboxes: [first, inbox] } as never);
    await expect(registered).rejects.toMatchObject({ code: "invalid_option", message: expect.stringMatching(says) });
  });
});
