import { globSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createDatabase, spawnNode, startPostgres } from "../../test/harness/index.ts";
import { prepare } from "./prepare.ts";

/** Installs the ORMs, checks the types, and runs each service on a real server: `npm run example:orms -- kysely knex`. */
const here = fileURLToPath(new URL(".", import.meta.url));
/** Ten thousand messages take less than a minute on two cores that are not shared. */
const SECONDS = 3600;

const all = globSync("*/main.ts", { cwd: here }).map((file) => file.slice(0, -"/main.ts".length));
const named = process.argv.slice(2);
const unknown = named.filter((name) => !all.includes(name));
if (unknown.length > 0) {
  console.error(`There is no example of ${unknown.join(", ")}, but of ${all.sort().join(", ")}`);
  process.exit(2);
}

await prepare(here);
await using server = await startPostgres();
const failed: string[] = [];
for (const name of named.length > 0 ? named : all.sort()) {
  await using first = await createDatabase(server.url);
  await using second = await createDatabase(server.url);
  const service = spawnNode(join(here, name, "main.ts"), [first.url, second.url], {
    nodeArgs: ["--import", join(here, "../from-source.ts")],
    timeoutMs: SECONDS * 1000,
    echo: true,
  });
  const { code, signal } = await service.waitForExit();
  if (code !== 0) failed.push(`${name} (${code ?? signal})`);
}
console.log(failed.length === 0 ? "All examples did what they should" : `Failed: ${failed.join(", ")}`);
process.exitCode = failed.length === 0 ? 0 : 1;
