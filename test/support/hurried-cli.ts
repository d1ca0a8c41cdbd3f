import { runCli } from "../../src/cli/run-cli.ts";

/** `txbox` that waits for its configuration no longer than HURRY_MS. */
await runCli({
  argv: process.argv.slice(2),
  env: process.env,
  cwd: process.cwd(),
  configDeadlineMs: Number(process.env["HURRY_MS"]),
});
