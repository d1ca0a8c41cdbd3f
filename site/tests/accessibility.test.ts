import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { afterAll, describe, expect, test } from "vitest";
import { serverOrSkip } from "../../test/harness/index.ts";
import { startBrowser } from "../../test/harness/start-browser.ts";
import { goto, NARROW, open, WIDE } from "./support/site-page.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** One of each kind: home, prose, diagrams, wide tables, long code, a page of a source. */
const KINDS = [
  "",
  "getting-started.html",
  "architecture.html",
  "troubleshooting.html",
  "guarantees.html",
  "stores/postgres.html",
  "decisions/0001-log-engine.html",
  "source/test/scenarios/postgres/tenants.test.ts.html",
];

const serious = async (page: Page): Promise<string[]> => {
  await page.evaluate(AXE);
  return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ": " + html.slice(0, 160))))`);
};

describe.skipIf(slot.skipped)("for everybody", () => {
  test.each(["light", "dark"] as const)("axe finds nothing serious, %s", async (colorScheme) => {
    const found: string[] = [];
    for (const options of [WIDE, NARROW]) {
      await open(slot.server.browser, { ...options, colorScheme }, async (page) => {
        for (const path of KINDS) {
          await goto(page, path);
          for (const what of await serious(page)) found.push(`${path} ${options.viewport.width}: ${what}`);
        }
      });
    }
    expect([...new Set(found)]).toEqual([]);
  });
});
