import { globSync } from "node:fs";
import type { Page } from "playwright-core";
import { afterAll, describe, expect, inject, test } from "vitest";
import { serverOrSkip } from "../../test/harness/index.ts";
import { startBrowser } from "../../test/harness/start-browser.ts";
import { goto, NARROW, open, SITE_URL, WAIT, WIDE } from "./support/site-page.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const ALL = globSync("**/*.html", { cwd: inject("siteFolder") }).sort();

interface Found {
  readonly ids: string[];
  readonly hrefs: string[];
  readonly heading: string;
  readonly width: number;
}

const isDark = (page: Page): Promise<boolean> => page.evaluate("document.documentElement.classList.contains('dark')");

describe.skipIf(slot.skipped)("the site in a browser", () => {
  test("every page opens on a phone without a complaint and without scrolling sideways, and no link is dead", async () => {
    expect(ALL.length).toBeGreaterThan(100);
    const anchors = new Map<string, Set<string>>();
    const links: { from: string; to: URL }[] = [];
    const wide: string[] = [];
    await open(slot.server.browser, NARROW, async (page, complaints) => {
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
        anchors.set(new URL(path, SITE_URL).pathname.replace(/index\.html$/, ""), new Set(found.ids));
        for (const href of new Set(found.hrefs)) links.push({ from: path, to: new URL(href) });
      }
      expect(complaints).toEqual([]);
    });
    expect(wide).toEqual([]);
    const here = links.filter(({ to }) => to.href.startsWith(SITE_URL));
    expect(here.length).toBeGreaterThan(3000);
    const dead = here.filter(({ to }) => {
      const ids = anchors.get(to.pathname.replace(/index\.html$/, ""));
      return ids === undefined || (to.hash !== "" && !ids.has(decodeURIComponent(to.hash.slice(1))));
    });
    expect(dead.map(({ from, to }) => `${from}: ${to.href}`)).toEqual([]);
  });

  test("search finds a page by a word of its text, and leads to it", async () => {
    await open(slot.server.browser, WIDE, async (page, complaints) => {
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
    await open(slot.server.browser, WIDE, async (page, complaints) => {
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
    await open(slot.server.browser, { ...WIDE, colorScheme: "dark" }, async (page, complaints) => {
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
    await open(slot.server.browser, NARROW, async (page, complaints) => {
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
    await open(slot.server.browser, WIDE, async (page) => {
      await goto(page, "outbox.html");
      const groups = await page.locator(".VPSidebar h2").allTextContents();
      expect(groups.slice(0, 3)).toEqual(["Begin", "The parts", "Databases and ORMs"]);
      const entries = await page.locator(".VPSidebar .VPSidebarItem.level-1 .text").allTextContents();
      expect(entries.slice(0, 2)).toEqual(["Why an outbox", "Getting started"]);
      expect(entries.length).toBeGreaterThan(45);
    });
  });
});
