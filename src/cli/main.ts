#!/usr/bin/env node
import module from "node:module";

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);

if (major < 22 || (major === 22 && minor < 18)) {
  const needed = `txbox needs Node 22.18 or later, this is ${process.versions.node}`;
  process.stderr.write(`${needed}. Upgrade Node, or npm install node@24 and run npx txbox\n`);
  process.exitCode = 1;
} else {
  // Starts three times as fast from the second time on. Other runtimes than Node may lack it.
  (module as Partial<typeof module>).enableCompileCache?.();
  // Only now, because the rest uses what older versions lack.
  const { runCli } = await import("./run-cli.ts");
  await runCli({ argv: process.argv.slice(2), env: process.env, cwd: process.cwd() });
}
