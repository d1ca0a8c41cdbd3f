import type { MaintenanceReport, SessionState, SourceEvent } from "../core/contracts.ts";

/** What a relay tells its host. `batch` comes once per batch, everything else is rare. */
export type RelayEvent =
  | { type: "started"; relay: string; owner: string }
  | { type: "stopped"; relay: string }
  | { type: "lanes"; relay: string; lanes: number }
  | { type: "paused" | "resumed"; relay: string }
  /** New messages wait, because too many are parked. */
  | { type: "full" | "not_full"; relay: string; parked: number }
  | { type: "batch"; relay: string; published: number; retried: number; dead: number; waiting: number; ms: number }
  /** The target is out: nothing counts as an attempt until it is back. */
  | { type: "outage"; relay: string; error: string; attempt: number; delayMs: number }
  | { type: "recovered"; relay: string }
  /** A part of the target is out: its messages wait and are not counted, all others go on. */
  | { type: "route_out"; relay: string; route: string; error: string; attempt: number; delayMs: number }
  | { type: "route_back"; relay: string; route: string }
  | { type: "retry"; relay: string; id: string; position: bigint; attempts: number; delayMs: number; error: string }
  | { type: "dead"; relay: string; id: string; position: bigint; attempts: number; error: string }
  | { type: "lease_lost"; relay: string }
  /** The store could not be used; the relay tries again. */
  | { type: "store_error"; relay: string; error: string; code: string | undefined }
  | { type: "maintained"; relay: string; report: MaintenanceReport }
  | SourceEvent
  /** The relay cannot go on, for example because it was dropped. */
  | { type: "failed"; relay: string; error: string };

export type { SessionState };
