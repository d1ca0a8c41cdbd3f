import { describe, expect, test } from "vitest";
import { type Flags, parseFlags } from "../../../src/cli/parse-flags.ts";

const FLAGS = {
  json: { kind: "switch", help: "" },
  key: { kind: "text", help: "" },
  start: { kind: "text", choices: ["earliest", "now"], help: "" },
  streams: { kind: "list", help: "" },
  max: { kind: "integer", min: 1, help: "" },
  position: { kind: "position", help: "" },
  watch: { kind: "seconds", fallback: 2, help: "" },
} as const satisfies Flags;

const parse = (...argv: string[]) => parseFlags(argv, FLAGS, "x");

describe("parseFlags", () => {
  test("gives values by kind", () => {
    const argv = [
      "a",
      "--json",
      "--key=k 1",
      "--streams",
      "x,y",
      "--streams",
      "z",
      "--max",
      "3",
      "--position",
      "9007199254740993",
      "b",
    ];
    expect(parse(...argv)).toEqual({
      flags: { json: true, key: "k 1", streams: ["x", "y", "z"], max: 3, position: 9_007_199_254_740_993n },
      positionals: ["a", "b"],
    });
  });

  test.each([
    [["--watch"], 2, []],
    [["--watch", "5"], 5, []],
    [["--watch=0.5"], 0.5, []],
    [["--watch", "orders"], 2, ["orders"]],
    [["5", "--watch"], 2, ["5"]],
  ])("%j is a number of seconds or none", (argv, watch, positionals) => {
    expect(parse(...argv)).toEqual({ flags: { watch }, positionals });
  });

  test.each([
    [["--jsno"], "There is no flag --jsno. Did you mean --json?"],
    [["-x"], "There is no flag -x"],
    [["--toString"], "There is no flag --toString"],
    [["--json=yes"], "--json takes no value"],
    [["--key"], "--key needs a value"],
    [["--key="], "--key needs a value"],
    [["--key", "--json"], "--key needs a value, and --json is a flag. If it is the value: --key=VALUE"],
    [["--key", "--other=secret"], "--key needs a value, and --other is a flag"],
    [["--key", "-x"], "--key needs a value, and -x is a flag"],
    [["--key", "--"], "--key needs a value"],
    [["--key", ""], "--key needs a value"],
    [["--max", "-1"], "--max needs a value"],
    [["--streams", ","], "--streams needs a value"],
    [["--key", "a", "--key", "b"], "--key is given twice"],
    [["--watch", "1", "--watch", "2"], "--watch is given twice"],
    [["--no-json"], "There is no flag --no-json"],
    [["-json"], "There is no flag -json"],
    [["---json"], "There is no flag ---json"],
    [["--watch=1e9"], "--watch must be a number of seconds"],
    [["--watch="], "--watch must be a number of seconds"],
    [["--start", "eariest"], '--start cannot be "eariest". Did you mean "earliest"?'],
    [["--max", "0"], '--max must be a whole number from 1, got "0"'],
    [["--max", "1e3"], "--max must be a whole number"],
    [["--position", "x"], '--position must be a position, got "x"'],
    [["--watch=no"], "--watch must be a number of seconds"],
  ])("%j is refused", (argv, message) => {
    expect(() => parse(...argv)).toThrow(message);
  });

  test.each([
    [["--key=--json"], { key: "--json" }],
    [["--key=-x"], { key: "-x" }],
    [["--key=a=b"], { key: "a=b" }],
    [["--key", "-"], { key: "-" }],
    [["--json", "--json"], { json: true }],
  ])("%j is a value after all", (argv, flags) => {
    expect(parse(...argv)).toEqual({ flags, positionals: [] });
  });

  test("everything after -- is a positional", () => {
    expect(parse("--json", "--", "--key")).toEqual({ flags: { json: true }, positionals: ["--key"] });
  });
});
