import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { EncodedAhead } from "../../../src/adapter/encoded-ahead.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";
import type { Message } from "../../../src/core/message.ts";

const batch = (count: number, from = 0) =>
  Array.from({ length: count }, (_, n) => sample("orders", from + n, { id: `m-${from + n}` }));

function sealing() {
  const sealed: string[] = [];
  const ahead = new EncodedAhead((message: Message) => {
    if (message.type === "bad") throw new Error("cannot be sealed");
    sealed.push(message.id);
    return { id: message.id };
  });
  const take = (messages: readonly Message[]) => {
    const of = ahead.of(messages);
    return messages.map((_, i) => of(i).id);
  };
  return { ahead, sealed, take };
}

const idsOf = (messages: readonly Message[]) => messages.map(({ id }) => id);

describe("EncodedAhead", () => {
  it("seals what comes next while it waits, a part at a time, and each message once", async () => {
    const { ahead, sealed, take } = sealing();
    const [one, two] = [batch(10), batch(1000, 10)];
    expect(take(one)).toEqual(idsOf(one));
    ahead.prepare(two);
    expect(sealed).toHaveLength(10);
    ahead.whileWaiting();
    const first = sealed.length;
    expect(first).toBeGreaterThan(10);
    expect(first).toBeLessThan(200);
    for (let i = 0; i < 100; i++) await turn();
    expect(sealed).toHaveLength(1010);
    expect(take(two)).toEqual(idsOf(two));
    expect(sealed).toHaveLength(1010);
  });

  it("seals the rest when there was not enough time", async () => {
    const { ahead, sealed, take } = sealing();
    const [one, two] = [batch(500), batch(500, 500)];
    ahead.whileWaiting();
    ahead.prepare(one);
    await turn();
    expect(take(one)).toEqual(idsOf(one));
    expect(sealed).toHaveLength(500);
    ahead.prepare(two);
    for (let i = 0; i < 50; i++) await turn();
    expect(sealed).toHaveLength(500);
    expect(take(two)).toEqual(idsOf(two));
  });

  it("gives nothing of what was to come next to another batch", () => {
    const { ahead, take } = sealing();
    const [one, two] = [batch(5), batch(5, 100)];
    ahead.whileWaiting();
    ahead.prepare(one);
    expect(take(two)).toEqual(idsOf(two));
    ahead.prepare(two);
    ahead.prepare(one);
    expect(take(one)).toEqual(idsOf(one));
  });

  it("fails for the message that cannot be sealed, when it is asked for", () => {
    const { ahead } = sealing();
    const messages = [...batch(3), sample("orders", 3, { type: "bad" }), ...batch(3, 4)];
    ahead.whileWaiting();
    expect(() => ahead.prepare(messages)).not.toThrow();
    const of = ahead.of(messages);
    expect(of(2).id).toBe("m-2");
    expect(() => of(3)).toThrow("cannot be sealed");
    expect(of(4).id).toBe("m-4");
  });
});
