import { afterAll, describe, expect, test } from "vitest";
import { serverOrSkip } from "../harness/index.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { adminScene } from "../support/admin-scene.ts";
import { servePage, WIDE } from "./page-scene.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const WAIT = { timeout: 60_000 };
const TOKEN = "a token of more than sixteen characters";

describe.skipIf(slot.skipped || !hasPostgres())("a page that is open while its session ends", () => {
  test("asks for the token once its feed was refused, and goes on with it", async () => {
    await using scene = await adminScene();
    await using served = await servePage(scene, { token: TOKEN });
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      await page.goto(served.url);
      await page.getByLabel("Token").fill(TOKEN);
      await page.getByRole("button", { name: "Open the page" }).click();
      await page.getByText("live", { exact: true }).waitFor(WAIT);
      await context.clearCookies();
      await served.stop();
      await page.getByText(/Not connected since/).waitFor(WAIT);
      await served.restart();
      await page.getByLabel("Token").waitFor(WAIT);
      await page.getByLabel("Token").fill(TOKEN);
      await page.getByRole("button", { name: "Open the page" }).click();
      await page.getByText("live", { exact: true }).waitFor(WAIT);
    } finally {
      await context.close();
    }
  });

  test("says so when the host's login lets it see nothing any more, and shows nothing of before", async () => {
    await using scene = await adminScene();
    let isAllowed = true;
    await using served = await servePage(scene, { authorize: () => (isAllowed ? { actor: "ada" } : null) });
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      await page.goto(served.url);
      await page.getByText("live", { exact: true }).waitFor(WAIT);
      isAllowed = false;
      await served.stop();
      await served.restart();
      await page.getByText(/The login of this service does not let you see this page/).waitFor(WAIT);
      expect(await page.getByRole("navigation").count()).toBe(0);
      isAllowed = true;
      await page.getByRole("button", { name: "Try again" }).click();
      await page.getByText("live", { exact: true }).waitFor(WAIT);
    } finally {
      await context.close();
    }
  });

  test("a feed that the server ends for a new one is not shown as lost", async () => {
    await using scene = await adminScene();
    await using served = await servePage(scene);
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      let asked = 0;
      await page.route("**/api/live", (route) =>
        ++asked === 1
          ? route.fulfill({ contentType: "text/event-stream", body: "event: again\ndata: \n\n" })
          : route.continue(),
      );
      const wasLost = page.getByText(/Not connected since/).waitFor({ timeout: 5000 });
      await page.goto(served.url);
      await page.getByText("live", { exact: true }).waitFor(WAIT);
      await expect(wasLost).rejects.toThrow(/Timeout/);
      expect(asked).toBe(2);
    } finally {
      await context.close();
    }
  });
});
