import { globSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { BrowserContextOptions, Page } from "playwright-core";
import { afterAll, describe, expect, inject, test } from "vitest";
import { serverOrSkip } from "../../test/harness/index.ts";
import { startBrowser } from "../../test/harness/start-browser.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const URL_OF_SITE = inject("siteUrl");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WAIT = { timeout: 60_000 };
const WIDE = { viewport: { width: 1280, height: 900 } };
const NARROW = { viewport: { width: 390, height: 844 }, hasTouch: true };
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
const ALL = globSync("**/*.html", { cwd: inject("siteFolder") }).sort();

interface Found {
  readonly ids: string[];
  readonly hrefs: string[];
  readonly heading: string;
  readonly width: number;
}

/** A page in a window of its own, with what it complains about: errors, failed requests, and requests to other places. */
async function open<T>(
  options: BrowserContextOptions,
  run: (page: Page, complaints: string[]) => Promise<T>,
): Promise<T> {
  const context = await slot.server.browser.newContext(options);
  try {
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.message}`));
    page.on("console", (line) => {
      if (["error", "warning"].includes(line.type())) complaints.push(`${page.url()}: ${line.text()}`);
    });
    page.on("request", (request) => {
      if (!/^(?:data|blob):/.test(request.url()) && !request.url().startsWith(URL_OF_SITE)) {
        complaints.push(`${page.url()} asks ${request.url()}`);
      }
    });
    page.on("response", (response) => {
      if (response.status() >= 400) complaints.push(`${page.url()}: ${response.status()} ${response.url()}`);
    });
    return await run(page, complaints);
  } finally {
    await context.close();
  }
}

async function goto(page: Page, path: string): Promise<void> {
  await page.goto(URL_OF_SITE + path, { ...WAIT, waitUntil: "load" });
  // The scripts have taken the page over.
  await page.waitForFunction("document.querySelector('#app')?.__vue_app__ !== undefined", undefined, WAIT);
}

const serious = async (page: Page): Promise<string[]> => {
  await page.evaluate(AXE);
  return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ": " + html.slice(0, 160))))`);
};

const isDark = (page: Page): Promise<boolean> => page.evaluate("document.documentElement.classList.contains('dark')");

describe.skipIf(slot.skipped)("the site in a browser", () => {
  test("every page opens on a phone without a complaint and without scrolling sideways, and no link is dead", async () => {
    expect(ALL.length).toBeGreaterThan(100);
    const anchors = new Map<string, Set<string>>();
    const links: { from: string; to: URL }[] = [];
    const wide: string[] = [];
    await open(NARROW, async (page, complaints) => {
      for (const path of ALL) {
        await goto(page, path);
        const found = await page.evaluate<Found>(`({
          ids: Array.from(document.querySelectorAll("[id]"), ({ id }) => id),
          hrefs: Array.from(document.querySelectorAll("a[href]"), ({ href }) => href),
          heading: document.querySelector("h1, p.code")?.textContent ?? "",
          width: document.documentElement.scrollWidth,
        })`);
        expect(found.heading, path).not.toBe("");
        if (found.width > NARROW.viewport.width) wide.push(`${path}: ${found.width}`);
        anchors.set(new URL(path, URL_OF_SITE).pathname.replace(/index\.html$/, ""), new Set(found.ids));
        for (const href of new Set(found.hrefs)) links.push({ from: path, to: new URL(href) });
      }
      expect(complaints).toEqual([]);
    });
    expect(wide).toEqual([]);
    const here = links.filter(({ to }) => to.href.startsWith(URL_OF_SITE));
    expect(here.length).toBeGreaterThan(3000);
    const dead = here.filter(({ to }) => {
      const ids = anchors.get(to.pathname.replace(/index\.html$/, ""));
      return ids === undefined || (to.hash !== "" && !ids.has(decodeURIComponent(to.hash.slice(1))));
    });
    expect(dead.map(({ from, to }) => `${from}: ${to.href}`)).toEqual([]);
  });

  test("search finds a page by a word of its text, and leads to it", async () => {
    await open(WIDE, async (page, complaints) => {
      await goto(page, "");
      await page
        .getByRole("button", { name: /search/i })
        .first()
        .click();
      await page.locator(".VPLocalSearchBox input").fill("compensated");
      const first = page.locator(".VPLocalSearchBox .result").first();
      await first.waitFor(WAIT);
      expect(await first.textContent()).toMatch(/Sagas/);
      await page.keyboard.press("Enter");
      await page.waitForURL(/sagas\.html/, WAIT);
      await page.getByRole("heading", { level: 1, name: "Sagas" }).waitFor(WAIT);
      expect(complaints).toEqual([]);
    });
  });

  test("search wants every word of what is looked for", async () => {
    await open(WIDE, async (page, complaints) => {
      await goto(page, "");
      await page
        .getByRole("button", { name: /search/i })
        .first()
        .click();
      await page.locator(".VPLocalSearchBox input").fill("trigger from an old outbox table");
      const results = page.locator(".VPLocalSearchBox .result");
      await results.filter({ hasText: "own outbox table" }).first().waitFor(WAIT);
      expect(await results.count()).toBeLessThan(10);
      expect(complaints).toEqual([]);
    });
  });

  test("the scheme follows the system, switches, and stays", async () => {
    await open({ ...WIDE, colorScheme: "dark" }, async (page, complaints) => {
      await goto(page, "why.html");
      expect(await isDark(page)).toBe(true);
      const colour = (): Promise<string> => page.evaluate("getComputedStyle(document.body).backgroundColor");
      const dark = await colour();
      const picture = (): Promise<string> =>
        page.evaluate("getComputedStyle(document.querySelector('.diagram svg text')).fill");
      const darkText = await picture();
      await page.locator(".VPNavBarAppearance .VPSwitchAppearance").click();
      await page.waitForFunction("!document.documentElement.classList.contains('dark')", undefined, WAIT);
      await page.reload();
      expect(await isDark(page)).toBe(false);
      expect(await colour()).not.toBe(dark);
      expect(await picture(), "diagrams follow").not.toBe(darkText);
      expect(complaints).toEqual([]);
    });
  });

  test("on a phone the menu opens and leads on", async () => {
    await open(NARROW, async (page, complaints) => {
      await goto(page, "outbox.html");
      await page.getByRole("button", { name: "Menu", exact: true }).click();
      const entry = page.locator(".VPSidebar").getByRole("link", { name: "Relay", exact: true });
      await entry.click(WAIT);
      await page.waitForURL(/relay\.html/, WAIT);
      await page.getByRole("heading", { level: 1, name: "Relay" }).waitFor(WAIT);
      expect(complaints).toEqual([]);
    });
  });

  test("the menu has the pages in the order of the index", async () => {
    await open(WIDE, async (page) => {
      await goto(page, "outbox.html");
      const groups = await page.locator(".VPSidebar h2").allTextContents();
      expect(groups.slice(0, 3)).toEqual(["Begin", "The parts", "Databases and ORMs"]);
      const entries = await page.locator(".VPSidebar .VPSidebarItem.level-1 .text").allTextContents();
      expect(entries.slice(0, 2)).toEqual(["Why an outbox", "Getting started"]);
      expect(entries.length).toBeGreaterThan(45);
    });
  });

  test.each(["light", "dark"] as const)("axe finds nothing serious, %s", async (colorScheme) => {
    const found: string[] = [];
    for (const options of [WIDE, NARROW]) {
      await open({ ...options, colorScheme }, async (page) => {
        for (const path of KINDS) {
          await goto(page, path);
          for (const what of await serious(page)) found.push(`${path} ${options.viewport.width}: ${what}`);
        }
      });
    }
    expect([...new Set(found)]).toEqual([]);
  });
});
