import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { describeError } from "../../../src/core/errors.ts";
import { requireFunction, requireInteger, requireName, rejectUnknownOptions } from "../../../src/core/options.ts";
import { valueKind } from "../../../src/core/value-kind.ts";
import { createRelay, publishEach } from "../../../src/index.ts";
import { mongoNames } from "../../../src/stores/mongodb/mongodb-names.ts";
import { transactionRunner } from "../../../src/stores/postgres/postgres-client.ts";

test.each([
  [undefined, "undefined"],
  [null, "null"],
  [5, "5"],
  [Number.NaN, "NaN"],
  [true, "true"],
  [5n, "5n"],
  ["postgres://u:secret@h/d", "a string"],
  ["", "an empty string"],
  [Symbol("secret"), "a symbol"],
  [() => 1, "a function"],
  [[1], "an array"],
  [{}, "an object"],
  [Object.create(null), "an object"],
  [new Date(0), "a Date"],
  [new Error("secret"), "an Error"],
  [new URLSearchParams(), "a URLSearchParams"],
  [new Uint8Array(), "a Uint8Array"],
  [new AbortController(), "an AbortController"],
])("%s is named", (value, kind) => {
  expect(valueKind(value)).toBe(kind);
});

test("what throws when it is looked at is an object, and still an error", () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  expect(valueKind(proxy)).toBe("an object");
  expect(describeError(proxy)).toBe("What was thrown, an object, cannot be made into text");
});

test("errors of options name what was given, whatever it is", () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  expect(() => requireName("f", "name", cycle)).toThrow("got an object");
  expect(() => requireName("f", "name", 5n)).toThrow("got 5n");
  expect(() => requireName("f", "name", "a b")).toThrow('got "a b"');
  expect(() => requireName("f", "name", "x".repeat(5000))).toThrow("got 5000 characters");
  expect(() => requireInteger("f", "n", Object.create(null), 1)).toThrow("got an object");
  expect(() => requireInteger("f", "n", Symbol("s"), 1)).toThrow("got a symbol");
  expect(() => requireFunction("f", "run", [], "Pass one")).toThrow("got an array");
  expect(() => rejectUnknownOptions("f", null as never, [])).toThrow("got null");
  const store = { queue: { join: () => undefined } };
  const publisher = publishEach(async () => undefined);
  const relay = (options: object) => createRelay({ store, name: "r", publisher, ...options } as never);
  expect(() => relay({ start: 5n })).toThrow("start cannot be 5n");
  expect(() => relay({ start: cycle })).toThrow("start cannot be an object");
  expect(() => relay({ start: "lastest" })).toThrow('start cannot be "lastest"');
  expect(() => relay({ onDead: { orders: [5n] } })).toThrow("onDead cannot be an array");
  expect(() => mongoNames(5n as never, "inbox")).toThrow("collection cannot be 5n");
  expect(() => transactionRunner({} as never)).toThrow("A transaction is needed, got an object.");
});

test("no other text of the sources names a value by typeof", () => {
  const src = fileURLToPath(new URL("../../../src", import.meta.url));
  const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  const by = files.filter(
    (file) =>
      file !== join("core", "value-kind.ts") && /`[^`]*\$\{typeof \w+\}/.test(readFileSync(join(src, file), "utf8")),
  );
  expect(by).toEqual([]);
});
