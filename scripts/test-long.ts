import { spawnSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

// Runs the tests that have a longer form, which `npm test` leaves out: TXBOX_LONG=1 turns it on. CONTRIBUTING.md says what
// each of them proves.
const root = fileURLToPath(new URL("..", import.meta.url));
const files = globSync("test/**/*.test.ts", { cwd: root }).filter((file) =>
  /\/(?:is-long|broker-outage)\.ts"/.test(readFileSync(join(root, file), "utf8")),
);
const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
const { status } = spawnSync(process.execPath, [vitest, "run", ...files, ...process.argv.slice(2)], {
  cwd: root,
  stdio: "inherit",
  env: { ...process.env, TXBOX_LONG: "1" },
});
process.exitCode = status ?? 1;
