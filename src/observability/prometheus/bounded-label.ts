/** What labels beyond the limit are called. */
export const OTHER = "other";

/** Values of a label as they are, until there are so many different ones; all later ones are the same. */
export function boundedLabel(limit: number): (value: string) => string {
  const known = new Set<string>();
  return (value) => {
    if (known.has(value)) return value;
    if (known.size >= limit) return OTHER;
    known.add(value);
    return value;
  };
}
