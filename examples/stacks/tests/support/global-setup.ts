import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { startPostgres } from "../../../../test/harness/index.ts";
import { packPackage } from "../../../../test/package/packed-package.ts";
import { stacks } from "./stacks.ts";

/** Puts the packed package beside the others, as an install would, and starts a server. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const packed = await packPackage();
  const installed = join(stacks, "node_modules", "txbox");
  rmSync(installed, { recursive: true, force: true });
  cpSync(packed.installed, installed, { recursive: true });
  project.provide("tarball", packed.tarball);
  const given = process.env["TXBOX_TEST_POSTGRES_URL"];
  const server = given === undefined ? await startPostgres({ owned: true }) : undefined;
  project.provide("postgresUrl", given ?? server!.url);
  return async () => {
    await server?.stop();
    packed.remove();
  };
}

declare module "vitest" {
  export interface ProvidedContext {
    tarball: string;
  }
}
