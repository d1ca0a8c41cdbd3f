import type { Headers } from "./message.ts";

/** Of a message that is published again on purpose, beside the relay's own work: the id it had, and since when it is sent. */
export interface ReplayHeaders extends Headers {
  readonly replayOf: string;
  readonly replayedAt: string;
}

export function replayHeaders({ id, headers }: { id: string; headers: Headers }, replayedAt: string): ReplayHeaders {
  return { ...headers, replayOf: id, replayedAt };
}
