import { afterAll, describe, expect, test } from "vitest";
import { serverOrSkip } from "../harness/index.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { adminScene } from "../support/admin-scene.ts";
import { isLong } from "../support/is-long.ts";
import { servePage, WIDE } from "./page-scene.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

/** The machine of an ordinary run is busy with other tests. */
const QUICK_MS = isLong ? 1000 : 4000;
const ROUNDS = 7;

describe.skipIf(slot.skipped || !hasPostgres())("a slow laptop", () => {
  test(`sees the first of it within ${QUICK_MS} ms, with the processor throttled four times`, async () => {
    await using scene = await adminScene();
    await scene.enqueue(
      ...Array.from({ length: 50 }, (_, n) => ({ stream: "s", type: "t", key: `k-${n}`, payload: n })),
    );
    await scene.relayOnce("r");
    await using served = await servePage(scene);
    const paints: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      // Each time without a cache.
      const context = await slot.server.browser.newContext(WIDE);
      const page = await context.newPage();
      const devtools = await context.newCDPSession(page);
      await devtools.send("Emulation.setCPUThrottlingRate", { rate: 4 });
      await page.goto(served.url);
      await page.getByText(/^All messages/).waitFor({ timeout: 60_000 });
      const paint = await page.evaluate(`performance.getEntriesByName("first-contentful-paint")[0].startTime`);
      paints.push(Math.round(Number(paint)));
      await context.close();
    }
    process.stdout.write(`first paint ${paints.join(", ")} ms\n`);
    expect(Math.min(...paints), paints.join(", ")).toBeLessThan(QUICK_MS);
  });
});
