import { expect, test } from "vitest";
import { runCommand } from "../../../test/harness/index.ts";
import { bin, stacks } from "./support/stacks.ts";

test.each([".", "nest", "nest/test"])("types of %s", async (project) => {
  const args = [bin("tsc"), "-p", project, "--noEmit"];
  const { stdout, stderr } = await runCommand(process.execPath, args, { cwd: stacks, timeoutMs: 120_000 });
  expect(stdout + stderr).toBe("");
});
