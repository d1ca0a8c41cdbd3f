import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { root } from "./packed-package.ts";

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly optional?: boolean;
  readonly cpu?: readonly string[];
  readonly optionalDependencies?: Record<string, string>;
}

const UNSEEN =
  /^@(?:oxfmt\/binding|oxlint\/binding|oxlint-tsgolint\/(?:darwin|win32)|rolldown\/binding|deno\/(?:darwin|linux|win32)|next\/swc|rollup\/rollup|unrs\/resolver-binding)-/;

describe.each(["package-lock.json", "examples/stacks/package-lock.json", "site/package-lock.json"])("%s", (file) => {
  const text = readFileSync(join(root, file), "utf8");
  const { packages } = JSON.parse(text) as { packages: Record<string, Locked> };

  test("names no registry, so that it works with any", () => {
    expect(Object.entries(packages).filter(([, { resolved }]) => /^https?:/.test(resolved ?? ""))).toEqual([]);
  });

  test("has a hash of every package, so that a changed one is not installed", () => {
    const missing = Object.entries(packages).filter(([path, { integrity }]) => path !== "" && integrity === undefined);
    const names = missing.map(([path]) => path.replace("node_modules/", ""));
    // Binaries of other platforms than the one that made this file: no registry within its reach had them.
    expect(names.filter((name) => !UNSEEN.test(name))).toEqual([]);
    expect(
      missing.filter(([, { optional, cpu }]) => optional !== true || cpu === undefined).map(([path]) => path),
    ).toEqual([]);
  });

  test("has the binaries of every platform, without which npm ci refuses to run", () => {
    const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).filter(
        (name) => !(`node_modules/${name}` in packages) && !(`${path}/node_modules/${name}` in packages),
      ),
    );
    expect(missing).toEqual([]);
  });
});
