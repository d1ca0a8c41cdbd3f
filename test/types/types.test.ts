import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { root } from "../support/docs/markdown.ts";
import { compile } from "../support/docs/snippets.ts";

const files = globSync("*.test-d.ts", { cwd: join(root, "test/types") });
const EXPECTED_ERROR = /^\s*\/\/ @ts-expect-error.*$/gm;

function program(file: string) {
  const code = readFileSync(join(root, "test/types", file), "utf8");
  return { file: file.replace("-d.ts", ".ts"), code: code.replaceAll("../../src/", join(root, "src/")) };
}

test("there are promises about types", () => {
  expect(files).not.toEqual([]);
});

test.each(files)("%s holds", async (file) => {
  expect(await compile([program(file)])).toBe("");
});

test.each(files)("%s: what must not compile is what the compiler refuses", async (file) => {
  const { file: name, code } = program(file);
  const expected = code.match(EXPECTED_ERROR)?.length ?? 0;
  expect(expected).toBeGreaterThan(0);
  const said = await compile([{ file: name, code: code.replaceAll(EXPECTED_ERROR, "") }]);
  const lines = new Set(Array.from(said.matchAll(/^[^\s(]+\((\d+),\d+\): error TS/gm), (match) => match[1]));
  expect(lines.size).toBe(expected);
});
