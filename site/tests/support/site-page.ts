import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { inject } from "vitest";

export const SITE_URL: string = inject("siteUrl");
export const WAIT = { timeout: 60_000 };
export const WIDE = { viewport: { width: 1280, height: 900 } };
export const NARROW = { viewport: { width: 390, height: 844 }, hasTouch: true };

/** A page in a window of its own, with what it complains about: errors, failed requests, and requests to other places. */
export async function open<T>(
  browser: Browser,
  options: BrowserContextOptions,
  run: (page: Page, complaints: string[]) => Promise<T>,
): Promise<T> {
  const context = await browser.newContext(options);
  try {
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.message}`));
    page.on("console", (line) => {
      if (["error", "warning"].includes(line.type())) complaints.push(`${page.url()}: ${line.text()}`);
    });
    page.on("request", (request) => {
      if (!/^(?:data|blob):/.test(request.url()) && !request.url().startsWith(SITE_URL)) {
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

export async function goto(page: Page, path: string): Promise<void> {
  await page.goto(SITE_URL + path, { ...WAIT, waitUntil: "load" });
  // The scripts have taken the page over.
  await page.waitForFunction("document.querySelector('#app')?.__vue_app__ !== undefined", undefined, WAIT);
}
