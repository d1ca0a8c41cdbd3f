/** Dead letters of one group, as far as they were counted. */
export interface FoundGroup {
  relay: string;
  group: string;
  count: number;
  estimated: boolean;
  firstDiedAt: Date;
  lastDiedAt: Date;
  /** Of the newest letter. */
  position: bigint;
  /** Some of its letters have no group of their own yet. */
  mixed?: boolean;
}

/**
 * Groups from the index, together with those of letters that have none there yet, those with most letters first. `more`:
 * not all of the latter were looked at.
 */
export function mergedGroups(
  found: readonly FoundGroup[],
  ungrouped: readonly FoundGroup[],
  more: boolean,
): FoundGroup[] {
  const groups = new Map(found.map((group) => [nameOf(group), { ...group, estimated: group.estimated || more }]));
  for (const one of ungrouped) {
    const known = groups.get(nameOf(one));
    if (known === undefined) groups.set(nameOf(one), { ...one, estimated: more, mixed: true });
    else {
      known.count += one.count;
      known.mixed = true;
      if (one.firstDiedAt < known.firstDiedAt) known.firstDiedAt = one.firstDiedAt;
      if (one.lastDiedAt > known.lastDiedAt) known.lastDiedAt = one.lastDiedAt;
      if (one.position > known.position) known.position = one.position;
    }
  }
  return [...groups.values()].toSorted(
    (a, b) => b.count - a.count || b.lastDiedAt.getTime() - a.lastDiedAt.getTime() || (a.group < b.group ? -1 : 1),
  );
}

function nameOf({ relay, group }: FoundGroup): string {
  return `${group} ${relay}`;
}
