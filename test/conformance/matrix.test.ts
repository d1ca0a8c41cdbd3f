import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { titleOf } from "../../src/testing/index.ts";
import { generated, suites } from "./matrix.ts";
import * as declared from "./targets.ts";

const { targets } = declared;

const root = fileURLToPath(new URL("../..", import.meta.url));
const read = (path: string): string => readFileSync(join(root, path), "utf8");
const adapters = (kind: string): string[] =>
  globSync(`src/${kind}/*/`, { cwd: root })
    .map((folder) => folder.split("/")[2] ?? "")
    .filter((folder) => folder !== "shared");

describe("the matrix", () => {
  test.each(Object.entries(generated))("of %s has today's cases; else run: npm run matrix", (path, update) => {
    expect(existsSync(join(root, path)), path).toBe(true);
    const page = read(path);
    expect(update(page)).toBe(page);
  });

  test.each(Object.entries(suites))("cases of the %s suite have titles of their own", (_, cases) => {
    const titles = cases.map(titleOf);
    expect(titles.filter((title, i) => titles.indexOf(title) !== i)).toEqual([]);
  });
});

describe("every adapter runs its suites", () => {
  test.each(adapters("stores"))("store %s", (adapter) => {
    expect(targets.filter((target) => target.adapter === adapter && target.suite === "store").length).toBeGreaterThan(
      0,
    );
    expect(proofs(adapter)).toMatch(/\bstoreConformance\b/);
  });

  test.each(adapters("brokers"))("broker %s", (adapter) => {
    const source = globSync(`src/brokers/${adapter}/*.ts`, { cwd: root }).map(read).join("\n");
    const wanted = ["Publisher", "Subscriber"].filter((contract) => new RegExp(`\\b${contract}\\b`).test(source));
    expect(wanted).not.toEqual([]);
    const code = proofs(adapter);
    expect(wanted.filter((contract) => !code.includes(`${contract.toLowerCase()}Conformance`))).toEqual([]);
  });

  test.each(targets.map((target) => [target.id, target] as const))("%s is run by a test file", (_, target) => {
    const name = Object.entries(declared).find(([, value]) => value === target)?.[0];
    expect(proofs(target.adapter)).toMatch(new RegExp(`\\b${name}\\b`));
  });
});

/** The code of an adapter's conformance tests. */
function proofs(adapter: string): string {
  const files = globSync(`test/conformance/${adapter}/*.ts`, { cwd: root });
  expect(
    files.filter((file) => file.endsWith(".test.ts")),
    `test/conformance/${adapter}/*.test.ts`,
  ).not.toEqual([]);
  return files.map(read).join("\n");
}
