/** What happens to the change stream of a relay that has it as its source. */
export type SourceEvent =
  /** Messages come by the stream from here on: after a scan, or from where the owner before had stopped. */
  | { type: "stream_started"; relay: string; from: "scan" | "resume" }
  /**
   * It ended, or could not be opened where it was to go on: a scan finds what it would have brought. `windowLost`: that
   * was gone from the oplog, which may be too small.
   */
  | { type: "stream_lost"; relay: string; error: string; windowLost: boolean };
