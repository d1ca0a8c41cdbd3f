import { afterEach, expect, test } from "vitest";
import { createInbox, createOutbox, createRelay } from "../../../src/index.ts";

const withResolvers = Object.getOwnPropertyDescriptor(Promise, "withResolvers");

afterEach(() => {
  if (withResolvers !== undefined) Object.defineProperty(Promise, "withResolvers", withResolvers);
});

test.each([
  ["createOutbox", createOutbox],
  ["createInbox", createInbox],
  ["createRelay", createRelay],
])("%s refuses a Node that is too old, rather than publish again and again", (name, create) => {
  Reflect.deleteProperty(Promise, "withResolvers");
  expect(() => create({} as never)).toThrow(`${name} needs Node 22.18 or later`);
});
