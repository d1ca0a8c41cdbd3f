import { mkdirSync, writeFileSync } from "node:fs";
import { afterAll, describe, it } from "vitest";
import { runConformance, type ConformanceCase } from "../../src/testing/index.ts";
import { targetFile, type CaseResult, type Target, type TargetResults } from "./targets.ts";

/** Runs a suite with vitest, several cases at once, and leaves the results for the matrix. */
export function conformanceSuite<Context, Feature extends string>(
  target: Target<Feature>,
  cases: readonly ConformanceCase<Context, Feature>[],
  context: () => Promise<Context & AsyncDisposable>,
): void {
  const results = new Map<string, CaseResult>();
  describe.concurrent(`on ${target.id}`, () => {
    runConformance(cases, {
      features: target.features,
      context,
      it(title, run) {
        results.set(title, "failed");
        // oxlint-disable-next-line vitest/valid-title -- titles are data
        it(title, async () => {
          await run();
          results.set(title, "passed");
        });
      },
      skip(title, missing) {
        results.set(title, "not applicable");
        it.skipIf(missing.length > 0)(`${title} (not applicable: no ${missing.join(", no ")})`, () => undefined);
      },
    });
  });
  afterAll(() => {
    const file = targetFile(target);
    mkdirSync(new URL(".", file), { recursive: true });
    const report: TargetResults = { target: target.id, results: Object.fromEntries(results) };
    writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
  });
}
