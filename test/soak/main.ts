import { writeFileSync } from "node:fs";
import { startPostgres } from "../harness/start-postgres.ts";
import { Soak } from "./soak.ts";
import { soakOptions } from "./soak-options.ts";
import { forgetCompiled } from "./supervised.ts";

const options = soakOptions(process.argv.slice(2));
if (options !== undefined) {
  const server = await startPostgres({
    owned: true,
    fsync: true,
    settings: { max_connections: "300", log_checkpoints: "off", recovery_init_sync_method: "syncfs" },
  });
  try {
    const result = await new Soak(server, options).run();
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
