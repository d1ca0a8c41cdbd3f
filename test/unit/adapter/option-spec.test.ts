import { describe, expect, test } from "vitest";
import {
  backoff,
  callback,
  flag,
  integer,
  milliseconds,
  names,
  oneOf,
  optional,
  readOptions,
  required,
  text,
} from "../../../src/adapter/index.ts";

const SPECS = {
  client: required((of, value) => {
    if (typeof value === "object") return value;
    throw new TypeError(`${of} needs a client`);
  }),
  count: integer(1, 10, 5),
  timeoutMs: milliseconds(1000),
  declare: flag(false),
  mode: oneOf(["a", "b"], "a"),
  group: optional(text('Pass group: "g"')),
  topics: names('Pass topics: ["t"]'),
  route: callback("Pass a function", (n: number) => n + 1),
  backoff: backoff({ baseMs: 1, maxMs: 2 }),
};
const client = {};
const read = (options: object) => readOptions("createX", options, SPECS, { waitMs: "timeoutMs" });

describe("readOptions", () => {
  test("fills in what was left out", () => {
    const { route, ...others } = read({ client, topics: "t" });
    expect(others).toEqual({
      client,
      count: 5,
      timeoutMs: 1000,
      declare: false,
      mode: "a",
      group: undefined,
      topics: ["t"],
      backoff: { baseMs: 1, maxMs: 2 },
    });
    expect(route(1)).toBe(2);
  });

  test.each([
    [{ count: 11 }, "count", /whole number from 1 to 10/],
    [{ declare: "yes" }, "declare", /true or false/],
    [{ mode: "c" }, "mode", /cannot be "c".*"a" or "b"/],
    [{ group: "" }, "group", /Pass group/],
    [{ topics: [] }, "topics", /name or a list of names/],
    [{ route: "x" }, "route", /function/],
    [{ backoff: { baseMs: 5, maxMs: 2 } }, "backoff.maxMs", /whole number from 5/],
    [{ cuont: 1 }, "cuont", /Did you mean "count"/],
    [{ waitMs: 5 }, "waitMs", /waitMs has another name now. Use timeoutMs instead/],
  ])("%j names the field and the fix", (options, field, message) => {
    const error = { code: "invalid_option", field, message: expect.stringMatching(message) };
    expect(() => read({ client, topics: ["t"], ...options })).toThrow(expect.objectContaining(error));
  });
});
