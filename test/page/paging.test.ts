import type { Page, Route } from "playwright-core";
import { afterAll, describe, expect, test } from "vitest";
import type { BlockedView, LetterView, MessageView } from "../../src/admin/page-api.ts";
import { eventually } from "../../src/testing/eventually.ts";
import { serverOrSkip, until } from "../harness/index.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { adminScene } from "../support/admin-scene.ts";
import { complaintsOf, servePage, WIDE } from "./page-scene.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const WAIT = { timeout: 60_000 };

const message = (id: string): MessageView => ({
  store: "shop",
  id,
  position: "1",
  stream: "s",
  type: id,
  key: null,
  aggregate: null,
  correlationId: null,
  createdAt: 0,
  deliverAt: null,
  relay: "r",
  status: "published",
  attempts: 1,
  lastError: null,
  publishedAt: 0,
});

const letter = (position: string): LetterView => ({
  store: "shop",
  relay: "r",
  id: `letter-${position}`,
  position,
  stream: "s",
  type: "t",
  key: null,
  state: "dead",
  command: null,
  attempts: 1,
  lastError: "broken",
  errors: [],
  diedAt: 0,
  createdAt: 0,
  edited: false,
});

const blocked = (key: string): BlockedView => ({
  store: "shop",
  relay: "r",
  stream: "s",
  key,
  position: "1",
  id: "m",
  attempts: 1,
  lastError: "broken",
  heldByDead: false,
  waiting: 1,
  since: 0,
  nextAttemptAt: null,
});

const messages = (...ids: string[]) => ({ messages: ids.map(message), lookedBackTo: null, missing: [] });

/** A second page that is answered when the test says so. */
class SecondPage {
  readonly #routes: Route[] = [];
  asked = 0;

  hold(route: Route): void {
    this.asked++;
    this.#routes.push(route);
  }

  async answer(json: unknown, status = 200): Promise<void> {
    await until(async () => this.#routes.length > 0, { what: "the second page" });
    for (const route of this.#routes.splice(0)) await route.fulfill({ status, json });
  }
}

async function onPage(run: (page: Page, url: string) => Promise<void>): Promise<void> {
  await using scene = await adminScene();
  await using served = await servePage(scene);
  const context = await slot.server.browser.newContext(WIDE);
  try {
    const page = await context.newPage();
    const complaints = complaintsOf(page);
    await run(page, served.url);
    expect(complaints.filter((text) => !text.includes("503"))).toEqual([]);
  } finally {
    await context.close();
  }
}

const rows = (page: Page) => page.locator("[data-row]").count();

describe.skipIf(slot.skipped || !hasPostgres())("further pages", () => {
  test.each([
    {
      where: "messages",
      first: { ...messages("a", "b"), next: "2" },
      second: { ...messages("c"), next: null },
      button: "Look further back",
    },
    {
      where: "dead?state=dead",
      api: "letters",
      first: { letters: [letter("1"), letter("2")], next: "2" },
      second: { letters: [letter("3")], next: null },
      button: "Show more",
    },
    {
      where: "dead?tab=blocked",
      api: "blocked",
      first: { keys: [blocked("a"), blocked("b")], next: "2" },
      second: { keys: [blocked("c")], next: null },
      button: "Show more",
    },
  ])("$where: two quick clicks ask once, and show no row twice", async ({ where, api, first, second, button }) => {
    await onPage(async (page, url) => {
      const further = new SecondPage();
      await page.route(`**/api/${api ?? where}?*`, (route) =>
        route.request().url().includes("after=2") ? further.hold(route) : route.fulfill({ json: first }),
      );
      await page.route(`**/api/${api ?? where}`, (route) => route.fulfill({ json: first }));
      await page.goto(url + where);
      await page.getByText("live", { exact: true }).waitFor(WAIT);
      await eventually(async () => expect(await rows(page)).toBe(2));
      // What the page follows is asked for again soon after it was opened.
      await page.waitForTimeout(2000);
      const clicks = `for (const one of [1, 2]) [...document.querySelectorAll("button")]
        .find(({ textContent }) => textContent === ${JSON.stringify(button)})?.click()`;
      await page.evaluate(clicks);
      await further.answer(second);
      await eventually(async () => expect(await rows(page)).toBe(3));
      expect(further.asked).toBe(1);
      expect(await page.getByRole("button", { name: button }).count()).toBe(0);
    });
  });

  test("a page of other filters that comes late is dropped", async () => {
    await onPage(async (page, url) => {
      const further = new SecondPage();
      await page.route(/api\/messages/, (route) => {
        const asked = route.request().url();
        if (asked.includes("after=")) return further.hold(route);
        const json = asked.includes("status=dead")
          ? { ...messages("dead-1"), next: null }
          : { ...messages("any-1"), next: "2" };
        return route.fulfill({ json });
      });
      await page.goto(`${url}messages`);
      await page.getByRole("button", { name: "Look further back" }).click(WAIT);
      await eventually(() => expect(further.asked).toBe(1));
      await page.getByLabel("status").selectOption("dead");
      await page.getByRole("link", { name: "dead-1" }).waitFor(WAIT);
      await further.answer({ ...messages("any-2"), next: null });
      await page.waitForTimeout(300);
      expect(await rows(page)).toBe(1);
      expect(await page.getByText("any-2").count()).toBe(0);
    });
  });

  test("an error is gone once the next try works", async () => {
    await onPage(async (page, url) => {
      let isDown = true;
      await page.route(/api\/messages/, (route) => {
        if (!route.request().url().includes("after=")) return route.fulfill({ json: { ...messages("a"), next: "2" } });
        return isDown
          ? route.fulfill({ status: 503, json: { error: "The store is down", fix: null } })
          : route.fulfill({ json: { ...messages("b"), next: null } });
      });
      await page.goto(`${url}messages`);
      await page.getByRole("button", { name: "Look further back" }).click(WAIT);
      await page.getByText("The store is down").waitFor(WAIT);
      isDown = false;
      await page.getByRole("button", { name: "Look further back" }).click();
      await page.getByRole("link", { name: "b", exact: true }).waitFor(WAIT);
      expect(await page.getByText("The store is down").count()).toBe(0);
    });
  });
});
