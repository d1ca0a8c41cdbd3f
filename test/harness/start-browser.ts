import { chromium, type Browser } from "playwright-core";
import { requireCommand } from "./require-command.ts";

export interface TestBrowser {
  readonly browser: Browser;
  stop(): Promise<void>;
}

/** A Chromium without a window; use with `serverOrSkip`, one for a whole file of tests. */
export async function startBrowser({ args: more = [] }: { args?: readonly string[] } = {}): Promise<TestBrowser> {
  const executablePath = await requireCommand("chromium", { apt: "chromium" });
  // As root there is no sandbox; /dev/shm is small in containers.
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", ...more];
  const browser = await chromium.launch({ executablePath, args, timeout: 60_000 });
  return { browser, stop: () => browser.close() };
}
