import type { SampleCounts } from "./contracts.ts";

export const NO_COUNTS: Readonly<SampleCounts> = {
  published: 0,
  retried: 0,
  dead: 0,
  unavailable: 0,
  processed: 0,
  duplicate: 0,
  failed: 0,
  rejected: 0,
};

/** What is counted in a sample, in the order in which stores keep it. */
export const SAMPLE_COUNTS: readonly (keyof SampleCounts)[] = Object.keys(NO_COUNTS) as (keyof SampleCounts)[];
