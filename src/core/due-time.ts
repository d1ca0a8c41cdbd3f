import { uuidv7Time } from "./uuid.ts";

/**
 * When a message could leave at the earliest. One that was scheduled keeps the time at which it was enqueued; the id that it
 * was given carries the time of its delivery. A time ahead of now is that of an id of other making.
 */
export function dueTime(id: string, createdMs: number, nowMs: number): number {
  const inId = uuidv7Time(id) ?? createdMs;
  return inId <= nowMs ? Math.max(inId, createdMs) : createdMs;
}
