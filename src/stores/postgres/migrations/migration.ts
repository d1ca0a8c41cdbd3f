/** A numbered step forward. Once released it is never edited: what changes later is a step of its own. */
export interface Migration {
  readonly version: number;
  readonly name: string;
  /** Names are written as "txbox"."table", and replaced by the configured schema and prefix. */
  readonly sql: string;
}
