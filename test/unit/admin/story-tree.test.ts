import { describe, expect, test } from "vitest";
import { causeOf, storyTree, type StoryMessage, type StoryPlace } from "../../../src/admin/story-tree.ts";

const place = (causationId: unknown, second: number): StoryPlace =>
  ({ headers: { causationId }, createdAt: new Date(second * 1000) }) as unknown as StoryPlace;

const known = (causes: Readonly<Record<string, unknown>>) =>
  new Map(Object.entries(causes).map(([id, cause], i) => [id, [place(cause, i)]]));

const outline = ({ id, caused }: StoryMessage): unknown => (caused.length === 0 ? id : [id, ...caused.map(outline)]);

describe("the tree of a story", () => {
  test("has what came of a message below it, oldest first", () => {
    const { root, messages, cut } = storyTree(known({ b2: "a", a: undefined, b1: "a", c: "b1", x: "y" }), "a", 10);
    expect(outline(root)).toEqual(["a", "b2", ["b1", "c"]]);
    expect([messages.length, cut]).toEqual([4, false]);
  });

  test("ends where causes go in a circle", () => {
    expect(outline(storyTree(known({ a: "c", b: "a", c: "b" }), "a", 10).root)).toEqual(["a", ["b", "c"]]);
    expect(outline(storyTree(known({ a: "a" }), "a", 10).root)).toBe("a");
  });

  test("is cut at its farthest", () => {
    const { root, cut, messages } = storyTree(known({ a: undefined, b: "a", c: "b", d: "c", e: "a" }), "a", 3);
    expect([outline(root), cut, messages.length]).toEqual([["a", "b", "e"], true, 3]);
  });

  test("may begin with a message that is in no store", () => {
    expect(outline(storyTree(known({ b: "elsewhere" }), "elsewhere", 10).root)).toEqual(["elsewhere", "b"]);
  });

  test.each([undefined, null, "", 5, {}, ["a"], "a\0", "\uD800", "x".repeat(2000)])("%o is no cause", (cause) => {
    expect(causeOf([place(cause, 1)])).toBeUndefined();
  });
});
