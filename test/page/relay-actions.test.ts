import type { Page } from "playwright-core";
import { afterAll, describe, expect, test } from "vitest";
import { eventually } from "../../src/testing/eventually.ts";
import { serverOrSkip } from "../harness/index.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { adminScene } from "../support/admin-scene.ts";
import { complaintsOf, servePage, WIDE } from "./page-scene.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const WAIT = { timeout: 60_000 };

async function carryOut(page: Page, question: string, button: string): Promise<void> {
  const dialog = page.getByRole("dialog");
  await dialog.getByText(question).waitFor(WAIT);
  await dialog.getByLabel("Your name").fill("ada");
  await dialog.getByLabel(/^Reason/).fill("the bank asked for it");
  await dialog.getByRole("button", { name: button, exact: true }).click();
  await dialog.waitFor({ ...WAIT, state: "detached" });
}

describe.skipIf(slot.skipped || !hasPostgres())("actions on a relay for which nothing waits", () => {
  test("it is paused, resumed, rewound and dropped, with words that say that nothing waits", async () => {
    await using scene = await adminScene();
    await scene.relayOnce("idle");
    await using served = await servePage(scene);
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      const complaints = complaintsOf(page);
      await page.goto(`${served.url}relays`);
      const relays = () => scene.store.admin.relays();

      await page.getByRole("button", { name: "Pause…" }).click(WAIT);
      await carryOut(page, "Pause relay idle? Nothing waits now.", "Pause");
      await eventually(async () => expect(await relays()).toMatchObject([{ paused: true }]));

      // Beside what was done stands what undoes it.
      await page.getByRole("status").getByRole("button", { name: "Undo…" }).click(WAIT);
      await carryOut(page, "Let relay idle go on? Nothing waits.", "Resume");
      await eventually(async () => expect(await relays()).toMatchObject([{ paused: false }]));
      await page.getByRole("button", { name: "Pause…" }).click(WAIT);
      await carryOut(page, "Pause relay idle? Nothing waits now.", "Pause");
      await eventually(async () => expect(await relays()).toMatchObject([{ paused: true }]));

      await page.getByRole("button", { name: "Resume" }).click(WAIT);
      await carryOut(page, "Let relay idle go on? Nothing waits.", "Resume");
      await eventually(async () => expect(await relays()).toMatchObject([{ paused: false }]));

      await page.getByRole("button", { name: "Rewind…" }).click(WAIT);
      await page.getByLabel("Go on from").selectOption("now");
      await page.getByRole("button", { name: "See what would be sent…" }).click();
      await carryOut(page, "Let relay idle go on from now? Nothing waits, so it skips nothing.", "Rewind");
      await page.getByLabel("Go on from").selectOption("earliest");
      await page.getByRole("button", { name: "See what would be sent…" }).click();
      await carryOut(page, "Rewind relay idle? No message would be sent again.", "Rewind");

      await page.getByRole("button", { name: "Drop…" }).click(WAIT);
      await carryOut(
        page,
        "Drop relay idle with its place in the log? Nothing waits, and it has no dead letters.",
        "Drop it",
      );
      await eventually(async () => expect(await relays()).toEqual([]));
      const { changes } = await scene.store.admin.changes({});
      expect(changes.map(({ action }) => action)).toEqual([
        "drop",
        "rewind",
        "rewind",
        "resume",
        "pause",
        "resume",
        "pause",
      ]);
      expect(complaints).toEqual([]);
    } finally {
      await context.close();
    }
  });

  test("to requeue a letter that is gone by now cannot be confirmed: there is nothing to do", async () => {
    await using scene = await adminScene();
    await scene.enqueue({ stream: "s", type: "t", key: "k", payload: 1 });
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    await using served = await servePage(scene);
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      await page.goto(`${served.url}dead?store=shop&relay=r&letter=1`);
      await page.getByRole("button", { name: "Requeue", exact: true }).waitFor(WAIT);
      // Another person is faster, and this page does not know of it yet.
      await page.route("**/api/preview", async (route) => {
        await scene.store.admin.requeue({ relay: "r", position: 1n });
        await scene.relayOnce("r");
        await route.continue();
      });
      await page.getByRole("button", { name: "Requeue", exact: true }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByText("No such dead letter is left to requeue.").waitFor(WAIT);
      expect(await dialog.getByRole("button", { name: "Requeue them" }).isDisabled()).toBe(true);
    } finally {
      await context.close();
    }
  });
});
