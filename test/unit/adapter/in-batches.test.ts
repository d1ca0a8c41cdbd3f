import { describe, expect, test } from "vitest";
import { inBatches, publishInBatches, type Batch } from "../../../src/adapter/index.ts";
import { PermanentError, UnavailableError } from "../../../src/core/errors.ts";
import type { Message } from "../../../src/core/message.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";

describe("inBatches", () => {
  test("sends what is asked for in one turn together, up to both limits", async () => {
    const sent: string[][] = [];
    const upper = inBatches({ most: 3, bytes: { most: 5, of: (text: string) => text.length } }, async (texts) => {
      sent.push([...texts]);
      return texts.map((text) => text.toUpperCase());
    });
    const texts = ["a", "b", "c", "d", "ee", "fff", "0123456789", "g"];
    expect(await Promise.all(texts.map(upper))).toEqual(texts.map((text) => text.toUpperCase()));
    expect(sent).toEqual([["a", "b", "c"], ["d", "ee"], ["fff"], ["0123456789"], ["g"]]);
    expect(await upper("later")).toBe("LATER");
  });

  test("gives the error of a batch to each of its items, and to no other", async () => {
    const ask = inBatches({ most: 2 }, async (items: readonly number[]) => {
      if (items.includes(2)) throw new Error("refused");
      return items;
    });
    const results = await Promise.allSettled([1, 2, 3].map(ask));
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled"]);
  });

  test("takes no answer that has another number of results", async () => {
    const ask = inBatches({ most: 2 }, async () => [1]);
    await expect(Promise.all([ask("a"), ask("b")])).rejects.toThrow("1 results for 2 items");
  });
});

const batchOf = (messages: readonly Message[], mayBegin = () => true): Batch => ({
  messages,
  kind: "new",
  signal: new AbortController().signal,
  mayBegin,
  onResult: undefined,
});
const common = { most: 10, target: ({ stream }: Message) => stream, encode: ({ id }: Message) => id };

describe("publishInBatches", () => {
  test("has one message of a key in a request, and lets none overtake one that was refused", async () => {
    const messages = ["a1", "a2", "a3", "b1", "b2"].map((id) => sample("s", id, { id, key: id[0]! }));
    const sent: string[][] = [];
    const results = await publishInBatches(batchOf(messages), {
      ...common,
      async send(_, ids) {
        sent.push([...ids]);
        return ids.map((id) => (id === "a2" ? new Error("not now") : undefined));
      },
    });
    expect(results.map(({ status }) => status)).toEqual(["published", "failed", "held", "published", "published"]);
    expect(sent).toEqual([
      ["a1", "b1"],
      ["a2", "b2"],
    ]);
  });

  test.each([
    ["an error of the client", new Error("ECONNREFUSED"), "unavailable"],
    ["a route that is out", new UnavailableError("no right", { route: "s" }), "unavailable"],
    ["a target that is missing", new PermanentError("no queue"), "rejected"],
  ])("blames no message for %s", async (_, error, status) => {
    const send = async () => Promise.reject(error);
    const results = await publishInBatches(batchOf([sample("s", 1)]), { ...common, send });
    expect(results).toEqual([expect.objectContaining({ status, error })]);
  });

  test("sends nothing when the lease ended while requests were gathered", async () => {
    let asked = 0;
    const send = async () => Promise.reject(new Error("sent"));
    const results = await publishInBatches(
      batchOf([sample("s", 1)], () => ++asked < 2),
      { ...common, send },
    );
    expect(results).toEqual([{ status: "unavailable" }]);
  });

  test("rejects a message that cannot be encoded, and only that one", async () => {
    const messages = [sample("s", 1, { key: "a" }), sample("s", 2, { key: "b" })];
    const results = await publishInBatches(batchOf(messages), {
      ...common,
      encode(message) {
        if (message === messages[0]) throw new PermanentError("too large");
        return message.id;
      },
      send: async (_, ids) => ids.map(() => undefined),
    });
    expect(results.map(({ status }) => status)).toEqual(["rejected", "published"]);
  });
});
