import { mkdirSync, writeFileSync } from "node:fs";
import { afterAll, describe, it } from "vitest";
import { runConformance, type ConformanceCase } from "../../src/testing/index.ts";
import { targetFile, type CaseResult, type Target, type TargetResults } from "./targets.ts";

export interface SuiteOptions<Feature extends string> {
  /** Cases that need one of these break the server that all share: they run one by one, after the others. */
  alone?: readonly Feature[];
  /** All run one by one: the database has a single thread, on which short leases would run out. */
  oneByOne?: boolean;
}

/** Runs a suite with vitest, several cases at once, and leaves the results for the matrix. */
export function conformanceSuite<Context, Feature extends string>(
  target: Target<Feature>,
  cases: readonly ConformanceCase<Context, Feature>[],
  context: (alone: boolean) => Promise<Context & AsyncDisposable>,
  { alone = [], oneByOne = false }: SuiteOptions<Feature> = {},
): void {
  const results = new Map<string, CaseResult>();
  const hand = (some: readonly ConformanceCase<Context, Feature>[], byItself: boolean): void =>
    runConformance(some, {
      features: target.features,
      context: () => context(byItself),
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
  const isAlone = ({ needs = [] }: ConformanceCase<Context, Feature>): boolean =>
    needs.some((feature) => alone.includes(feature));
  describe(`on ${target.id}`, { concurrent: !oneByOne }, () => {
    hand(
      cases.filter((one) => !isAlone(one)),
      false,
    );
  });
  const breaking = cases.filter(isAlone);
  if (breaking.length > 0) {
    describe(`on ${target.id}, one by one`, () => {
      hand(breaking, true);
    });
  }
  afterAll(() => {
    const file = targetFile(target);
    mkdirSync(new URL(".", file), { recursive: true });
    const report: TargetResults = { target: target.id, results: Object.fromEntries(results) };
    writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
  });
}
