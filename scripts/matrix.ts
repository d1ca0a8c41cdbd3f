import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { generated, problemsOf } from "../test/conformance/matrix.ts";
import { targetFile, targets, type Target, type TargetResults } from "../test/conformance/targets.ts";

// Writes the store and broker matrix from the results that `npm run test:conformance` has left.
const root = new URL("../", import.meta.url);

function resultsOf(target: Target): TargetResults["results"] | undefined {
  const file = targetFile(target);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as TargetResults).results : undefined;
}

const problems = targets.flatMap((target) => problemsOf(target, resultsOf(target)));
if (problems.length > 0) {
  process.stderr.write(
    `${problems.join("\n")}\nRun npm run test:conformance first; the matrix says only what passes.\n`,
  );
  process.exitCode = 1;
} else {
  for (const [path, update] of Object.entries(generated)) {
    const file = fileURLToPath(new URL(path, root));
    writeFileSync(file, update(readFileSync(file, "utf8")));
    process.stdout.write(`${path} is up to date\n`);
  }
}
