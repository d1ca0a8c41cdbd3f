/** One behaviour that every adapter must show, independent of the test runner: it passes unless `run` throws. */
export interface ConformanceCase<Context, Feature extends string = string> {
  /** Unique within its suite; reads on after the role. */
  readonly name: string;
  /** The contract that it is about. */
  readonly role: string;
  /** Features without which the case does not apply. */
  readonly needs?: readonly Feature[];
  run(context: Context): Promise<void>;
}

export interface ConformanceRun<Context, Feature extends string> {
  /** What the adapter supports; cases that need more are skipped. */
  readonly features: readonly Feature[];
  /** Everything that one case may touch, made fresh for it and disposed of after it. */
  readonly context: () => Promise<Context & AsyncDisposable>;
  /** Your runner's `it` or `test`. */
  readonly it: (name: string, run: () => Promise<void>) => void;
  /** Called for a case that does not apply, with the features it misses; make that visible. */
  readonly skip: (name: string, missing: readonly Feature[]) => void;
}

/** Hands every case to a test runner: those that apply to `it`, the others to `skip`. */
export function runConformance<Context, Feature extends string>(
  cases: readonly ConformanceCase<Context, Feature>[],
  { features, context, it, skip }: ConformanceRun<Context, Feature>,
): void {
  for (const one of cases) {
    const missing = missingFeatures(one, features);
    if (missing.length > 0) {
      skip(titleOf(one), missing);
      continue;
    }
    it(titleOf(one), async () => {
      await using fresh = await context();
      await one.run(fresh);
    });
  }
}

export function missingFeatures<Feature extends string>(
  one: { readonly needs?: readonly Feature[] },
  features: readonly Feature[],
): Feature[] {
  return (one.needs ?? []).filter((feature) => !features.includes(feature));
}

export function titleOf(one: { readonly name: string; readonly role: string }): string {
  return `${one.role}: ${one.name}`;
}
