/**
 * A numbered step forward. Once released it is never edited: what changes later is a step of its own. Names are written
 * as "txbox"."table", and replaced by the configured schema and prefix; 'txbox_lock_scope' stands for what distinguishes
 * this installation in advisory locks.
 */
export type Migration = PlainMigration | OnlineMigration;

/**
 * Takes a moment and disturbs no other session: a new table, a new column. Runs in one transaction with the plain ones
 * beside it.
 */
export interface PlainMigration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
}

/**
 * Changes the log while it is written to. Its pieces run in order, each in a transaction of its own. Each checks what is
 * left to do, so that a run that was killed can begin again at the first.
 */
export interface OnlineMigration {
  readonly version: number;
  readonly name: string;
  readonly pieces: readonly Piece[];
}

export interface Piece {
  /** What an operator who waits is shown: "indexing a segment". */
  readonly title: string;
  readonly sql: string;
  /** A query for how many runs this piece still needs; it is repeated until there is none left. Without: one run. */
  readonly left?: string;
}
