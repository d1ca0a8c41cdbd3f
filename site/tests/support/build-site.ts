import { existsSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { freePort, mustRun, type NodeProcess, spawnNode } from "../../../test/harness/index.ts";
import { ROOT } from "../../lib/repository.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** With a slash at its end. */
    siteUrl: string;
    siteFolder: string;
  }
}

const SITE = join(ROOT, "site");
const VITEPRESS = join(SITE, "node_modules", "vitepress", "bin", "vitepress.js");

/** Builds the site as it is published, and serves what was built. */
export async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  if (!existsSync(VITEPRESS)) throw new Error("The site has packages of its own: npm run test:site");
  await mustRun(process.execPath, [VITEPRESS, "build", SITE], { timeoutMs: 240_000 });
  const port = String(await freePort());
  const preview: NodeProcess = spawnNode(VITEPRESS, ["preview", SITE, "--host", "127.0.0.1", "--port", port], {
    timeoutMs: 60_000,
  });
  await preview.waitForLine("served at");
  provide("siteUrl", `http://127.0.0.1:${port}/`);
  provide("siteFolder", join(SITE, ".vitepress", "dist"));
  return async () => {
    await preview.kill();
  };
}
