import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { root } from "./packed-package.ts";

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly optionalDependencies?: Record<string, string>;
}

const text = readFileSync(join(root, "package-lock.json"), "utf8");
const { packages } = JSON.parse(text) as { packages: Record<string, Locked> };

describe("package-lock.json", () => {
  test("names no registry, so that it works with any", () => {
    expect(Object.entries(packages).filter(([, { resolved }]) => /^https?:/.test(resolved ?? ""))).toEqual([]);
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
