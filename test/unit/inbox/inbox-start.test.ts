import { expect, test } from "vitest";
import type { Subscriber } from "../../../src/core/contracts.ts";
import { createInbox, type InboxStore } from "../../../src/inbox/inbox.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createRelay } from "../../../src/relay/relay.ts";

const neverAsked = (): never => {
  throw new Error("The store was asked");
};
const store = { ledger: { receive: neverAsked }, classify: neverAsked } as unknown as InboxStore<object>;
const publisher = publishEach(async () => undefined);
const relay = createRelay({ store: { queue: { join: neverAsked } } as never, name: "r", publisher });

test.each<[what: string, given: unknown, got: string]>([
  ["nothing", undefined, "got undefined"],
  ["a publisher", publisher, "got a publisher"],
  ["a relay", relay, "got a relay"],
  ["a URL", "redis://127.0.0.1", "got a string"],
  ["half of one", { start: neverAsked }, "got an object"],
])("start refuses %s, before anything has begun", async (_, given, got) => {
  const inbox = createInbox<{ paid: string }, object>({ store, consumer: "c" }).on("paid", neverAsked);
  await expect(inbox.start(given as Subscriber)).rejects.toMatchObject({
    code: "invalid_option",
    field: "subscriber",
    message: expect.stringMatching(
      new RegExp(`^inbox\\.start needs a subscriber, ${got}\\. Pass one, such as createInProcessBus`),
    ),
  });
});
