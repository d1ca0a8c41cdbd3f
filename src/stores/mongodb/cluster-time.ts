/** A time of the cluster, as the driver gives it. */
export interface ClusterTime {
  readonly high: number;
  readonly low: number;
}

export function isAfter(a: ClusterTime, b: ClusterTime): boolean {
  const [high, other] = [a.high >>> 0, b.high >>> 0];
  return high === other ? a.low >>> 0 > b.low >>> 0 : high > other;
}

/** The first of them; undefined unless each of them is known. */
export function firstOf(times: readonly (ClusterTime | undefined)[]): ClusterTime | undefined {
  let first = times[0];
  for (const time of times) {
    if (time === undefined) return undefined;
    if (first === undefined || isAfter(first, time)) first = time;
  }
  return first;
}
