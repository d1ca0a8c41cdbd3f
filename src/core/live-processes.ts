import type { RelayInfo } from "./contracts.ts";

/** A process holds these lanes now. */
export function isLive({ owner, leaseMs }: RelayInfo["lanes"][number]): boolean {
  return owner !== null && leaseMs > 0;
}

/** How many processes run a relay. */
export function processesOf({ lanes }: RelayInfo): number {
  return new Set(lanes.filter(isLive).map(({ owner }) => owner)).size;
}
