import { setImmediate as turn, setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { HeldMessages, type HeldMessagesOptions } from "../../../src/adapter/index.ts";
import { PermanentError } from "../../../src/core/errors.ts";
import { eventually } from "../../../src/testing/index.ts";

const NOT_OURS = new PermanentError("another's");
const LATER = new Error("later");

/** What the broker was told, and held messages that it takes or refuses. */
function bench(options: Partial<HeldMessagesOptions> = {}) {
  const told: string[] = [];
  const tell = (what: string) => async (ids: readonly string[]) => {
    told.push(`${what} ${ids.join(" ")}`);
    return ids.map(() => undefined);
  };
  const held = new HeldMessages({
    acknowledge: tell("done"),
    renew: tell("renew"),
    release: tell("release"),
    ...options,
  });
  return { held, told };
}

describe("HeldMessages", () => {
  test("acknowledges what is done together, as many at once as the broker takes", async () => {
    const { held, told } = bench({ most: 2 });
    for (const id of ["a", "b", "c"]) held.add(id);
    for (const id of ["a", "b", "c"]) held.done(id);
    expect(told).toEqual([]);
    expect(await held.flush()).toBe(true);
    expect(told).toEqual(["done a b", "done c"]);
    expect(["a", "b", "c"].some((id) => held.has(id))).toBe(false);
  });

  test("tells again what was refused for now, and not what is another's", async () => {
    let calls = 0;
    const asked: string[][] = [];
    const { held } = bench({
      acknowledge: async (ids) => {
        asked.push([...ids]);
        if (calls++ === 0) throw new Error("the broker is out");
        return calls === 2 ? [undefined, LATER, NOT_OURS] : [undefined];
      },
    });
    for (const id of ["a", "b", "c"]) held.add(id);
    for (const id of ["a", "b", "c"]) held.done(id);
    expect(await held.flush()).toBe(false);
    await eventually(() => expect(asked).toEqual([["a", "b", "c"], ["a", "b", "c"], ["b"]]));
    await eventually(() => expect(held.has("b")).toBe(false));
  });

  test("waits in the end for an acknowledgement that is under way", async () => {
    const answer = Promise.withResolvers<undefined[]>();
    const { held } = bench({ acknowledge: () => answer.promise });
    held.add("a");
    held.done("a");
    await turn();
    await turn();
    let ended: boolean | undefined;
    const ending = held.end().then((told) => (ended = told));
    await sleep(5);
    expect(ended).toBeUndefined();
    answer.resolve([undefined]);
    expect(await ending).toBe(true);
  });

  test("renews what is in hand, and what is done until that is acknowledged", async () => {
    const { held, told } = bench({ most: 2, acknowledge: () => Promise.reject(LATER) });
    for (const id of ["a", "b", "c", "d"]) held.add(id);
    held.drop("b");
    held.done("c");
    await held.flush();
    await held.renew();
    expect(told).toEqual(["renew a c", "renew d"]);
    expect(await held.end()).toBe(false);
    await held.renew();
    expect(told.length).toBe(2);
  });

  test("aborts all of a group when one of them is another's", async () => {
    const { held } = bench({ renew: async () => [undefined, NOT_OURS, undefined, LATER] });
    const signals = [held.add("a", "g"), held.add("b", "g"), held.add("c", "h"), held.add("d")];
    await held.renew();
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true, false, false]);
  });

  test("renews by itself at a third of the time, and aborts when that did not work until it is over", async () => {
    let isOut = false;
    const renewedAt: number[] = [];
    const { held } = bench({
      holdMs: 150,
      renew: async (ids) => {
        if (isOut) throw new Error("the broker is out");
        renewedAt.push(performance.now());
        return ids.map(() => undefined);
      },
    });
    const signal = held.add("a");
    await sleep(400);
    expect(signal.aborted).toBe(false);
    expect(renewedAt.length).toBeGreaterThan(3);
    isOut = true;
    const lost = Promise.withResolvers<number>();
    signal.addEventListener("abort", () => lost.resolve(performance.now()));
    const lastAt = renewedAt.at(-1)!;
    expect((await lost.promise) - lastAt).toBeGreaterThan(140);
    await held.end();
  });

  test("gives messages back together, after a renewal that is under way", async () => {
    const renewal = Promise.withResolvers<undefined[]>();
    const { held, told } = bench({ renew: () => renewal.promise });
    for (const id of ["a", "b"]) held.add(id);
    const renewing = held.renew();
    const released = Promise.all([held.release("a"), held.release("b")]);
    await sleep(5);
    expect(told).toEqual([]);
    renewal.resolve([undefined, undefined]);
    await Promise.all([renewing, released]);
    expect(told).toEqual(["release a b"]);
  });
});
