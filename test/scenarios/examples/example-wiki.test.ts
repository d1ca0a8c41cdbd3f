import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import { inCi, spawnNode } from "../../harness/index.ts";
import { isLong } from "../../support/is-long.ts";

const SECONDS = isLong ? 60 : 8;
const folder = mkdtempSync(join(tmpdir(), "txbox-wiki-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const path = (relative: string): string => fileURLToPath(new URL(`../../../examples/${relative}`, import.meta.url));

it(
  "the wiki ends as if nothing had happened: killed workers, repeats, revisions left out of the outbox",
  async ({ skip }) => {
    const json = join(folder, "wiki.json");
    const show = spawnNode(path("wiki/show/main.ts"), ["--seconds", String(SECONDS), "--json", json], {
      nodeArgs: ["--import", path("from-source.ts")],
      timeoutMs: (SECONDS + 150) * 1000,
    });
    const { code } = await show.waitForExit();
    if (code === 3 && !inCi()) return skip("no MongoDB");
    expect(code, [...show.stdout, ...show.stderr].join("\n")).toBe(0);
    const result = JSON.parse(readFileSync(json, "utf8")) as Record<string, unknown>;
    const revisions = Number(result["revisions"]);
    expect(revisions).toBeGreaterThan(20);
    expect(result).toMatchObject({
      passed: true,
      snapshots: revisions,
      missingSnapshots: [],
      staleSearchDocuments: [],
    });
    expect(result).toMatchObject({ miscounted: [], dead: 0, crashes: [] });
    for (const chaos of ["kills", "pauses", "serverKills", "repeats", "reconciled"])
      expect(result[chaos], chaos).toBeGreaterThan(0);
  },
  (SECONDS + 200) * 1000,
);
