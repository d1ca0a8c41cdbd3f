import { describe, expect, it } from "vitest";
import { KeyChains } from "../../../src/brokers/rabbitmq/key-chains.ts";

const chainsOf = (keys: readonly (string | null)[]) => new KeyChains(keys.map((key) => ({ stream: "s", key })));

function takeAll(chains: KeyChains): number[] {
  const taken: number[] = [];
  for (let i = chains.take(); i !== undefined; i = chains.take()) taken.push(i);
  return taken;
}

describe("KeyChains", () => {
  it("gives the first of each key, longest chains first", () => {
    expect(takeAll(chainsOf(["a", "b", "b", "c", "c", "c", null]))).toEqual([3, 1, 0, 6]);
  });

  it("gives the next of a key when the one before is through", () => {
    const chains = chainsOf(["a", "a", "b", "a"]);
    expect(takeAll(chains)).toEqual([0, 2]);
    chains.follow(2);
    expect(chains.take()).toBeUndefined();
    chains.follow(0);
    expect(takeAll(chains)).toEqual([1]);
    chains.follow(1);
    expect(takeAll(chains)).toEqual([3]);
    chains.follow(3);
    expect(chains.size).toBe(0);
  });

  it("gives again what was put back", () => {
    const chains = chainsOf(["a", "b"]);
    expect(takeAll(chains)).toEqual([0, 1]);
    chains.add(1);
    expect(chains.size).toBe(1);
    expect(takeAll(chains)).toEqual([1]);
  });

  it("keeps keys of different streams apart", () => {
    const chains = new KeyChains([
      { stream: "s", key: "a" },
      { stream: "t", key: "a" },
    ]);
    expect(takeAll(chains)).toEqual([0, 1]);
  });

  it("lets all go at once where no key comes twice, and fewer where one does", () => {
    expect(chainsOf(["a", "b", null, null]).window).toBe(Number.POSITIVE_INFINITY);
    expect(chainsOf(["a", "a", "b", "c"]).window).toBe(256);
  });
});
