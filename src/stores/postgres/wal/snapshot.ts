/** A `pg_snapshot` as the server writes it: which transactions a statement could see. */
export interface Snapshot {
  readonly text: string;
  /** Every transaction before it had ended. */
  readonly xmin: bigint;
  /** None from here on had begun. */
  readonly xmax: bigint;
  /** Those between that were running. */
  readonly running: readonly string[];
  /** Of a transaction that has committed: whether its commit was visible. */
  sees(xid: bigint): boolean;
}

export function parseSnapshot(text: string): Snapshot {
  const [xmin = "", xmax = "", list = ""] = text.split(":");
  const running = list === "" ? [] : list.split(",");
  const set = new Set(running.map(BigInt));
  const [from, to] = [BigInt(xmin), BigInt(xmax)];
  return { text, xmin: from, xmax: to, running, sees: (xid) => xid < from || (xid < to && !set.has(xid)) };
}
