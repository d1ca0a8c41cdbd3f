export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Nearest rank. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN;
}

export function best(values: readonly number[]): number {
  return Math.max(...values);
}
