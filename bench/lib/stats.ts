export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Of an even number of values the mean of the two in the middle. */
export function middle(values: readonly number[]): number {
  return (quantile(values, 0.5) + quantile(values, (Math.floor(values.length / 2) + 1) / values.length)) / 2;
}

/** Nearest rank. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN;
}

export function best(values: readonly number[]): number {
  return Math.max(...values);
}
