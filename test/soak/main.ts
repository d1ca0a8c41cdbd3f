import { writeFileSync } from "node:fs";
import { Soak } from "./soak.ts";
import { soakOptions } from "./soak-options.ts";
import { stageName, stageNamed } from "./stage.ts";
import { forgetCompiled } from "./supervised.ts";

const options = soakOptions(process.argv.slice(2));
if (options !== undefined) {
  const stage = await stageNamed(stageName(options.store, options.source));
  const server = await stage.start();
  try {
    const result = await new Soak(stage, server, options).run();
    const text = `${JSON.stringify(result, undefined, 2)}\n`;
    if (options.json !== undefined) writeFileSync(options.json, text);
    process.stdout.write(text);
    process.exitCode = result.passed ? 0 : 1;
  } finally {
    await server.stop();
    forgetCompiled();
  }
  // Timers of processes that are gone must not keep this one.
  process.exit();
}
