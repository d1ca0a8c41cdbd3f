import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { blocks, page, root } from "../support/docs/markdown.ts";

const files = globSync("examples/stacks/{bundled,nest,next,services}/**/*.{ts,js,cjs}", {
  cwd: root,
  exclude: ["**/{node_modules,dist,.next*}"],
});
const sources = files.map((file) => plain(readFileSync(join(root, file), "utf8")));
const code = ["docs/frameworks.md", "docs/bundlers-and-runtimes.md", "docs/serverless.md"]
  .flatMap((path) => blocks(page(path)))
  .filter(({ language }) => language === "ts" || language === "js");

test("there is code on the pages", () => {
  expect(files.length).toBeGreaterThan(15);
  expect(code.length).toBeGreaterThan(15);
});

test.each(code)("$page:$line is part of an application that runs", ({ code: block }) => {
  expect(sources.filter((source) => source.includes(plain(block))).length).toBeGreaterThan(0);
});

/** Without indentation. */
function plain(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim();
}
