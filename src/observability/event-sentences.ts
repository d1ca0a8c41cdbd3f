import type { MaintenanceReport } from "../core/contracts.ts";
import type {
  BatchEvent,
  InboxEvent,
  MaintenanceEvent,
  ReconcilerEvent,
  RelayEvent,
  SubscriberEvent,
  WakeUpEvent,
} from "../core/events.ts";
import { formatMs, plural } from "../core/plain-words.ts";

/** After a kill, a new process starts without lanes for a while, and no other event would say why. */
const OTHERS = ": other processes have them, or one that was killed has them until its lease ends";

/** What a relay tells, in words. */
export function relaySentence(event: Exclude<RelayEvent, { type: "batch" }>): string {
  switch (event.type) {
    case "started":
      return `started as ${event.owner}`;
    case "stopped":
      return "stopped";
    case "lanes":
      return `works on ${event.lanes} of 64 lanes${event.lanes === 0 ? OTHERS : ""}`;
    case "paused":
    case "resumed":
      return event.type;
    case "full":
      return `takes no new messages: ${plural(event.parked, "message")} wait behind failed ones`;
    case "not_full":
      return "takes new messages again";
    case "outage":
      return `the target is out (${event.error}); next try in ${formatMs(event.delayMs)}`;
    case "route_out":
      return `${event.route} is out (${event.error}): its messages wait, others go on; next try in ${formatMs(event.delayMs)}`;
    case "route_back":
      return `${event.route} is back`;
    case "recovered":
      return "the target is back";
    case "retry":
      return `message ${event.id} failed (attempt ${event.attempts}): ${event.error}; next try in ${formatMs(event.delayMs)}`;
    case "dead":
      return `message ${event.id} is dead after ${plural(event.attempts, "attempt")}: ${event.error}`;
    case "lease_lost":
      return "lost its lease; what was in hand goes out again";
    case "store_error":
      return `the store cannot be used: ${event.error}`;
    case "maintained":
      return maintained(event.report);
    case "stream_started":
      return `gets new messages by the stream of the database, ${event.from === "scan" ? "after a scan" : "from where it stopped"}`;
    case "stream_lost":
      return `lost the stream of the database (${event.error}): it looks for messages until there is another`;
    case "failed":
      return `cannot go on: ${event.error}`;
  }
}

function maintained({ rotated, droppedSegments, heldBackBy, archiveError }: MaintenanceReport): string {
  const parts: string[] = [];
  if (rotated) parts.push("began a new segment");
  if (droppedSegments.length > 0) parts.push(`dropped ${droppedSegments.join(", ")}`);
  if (heldBackBy.length > 0) parts.push(`kept old segments for ${heldBackBy.join(", ")}`);
  if (archiveError !== undefined) parts.push(archiveError);
  return parts.join("; ");
}

export function batchSentence({ published, retried, dead, waiting, ms }: BatchEvent): string {
  const rest = [
    retried > 0 ? `, ${retried} to be retried` : "",
    dead > 0 ? `, ${dead} dead` : "",
    waiting > 0 ? `, ${waiting} waiting` : "",
  ].join("");
  return `published ${plural(published, "message")} in ${formatMs(ms)}${rest}`;
}

export function subscriberSentence(event: SubscriberEvent): string {
  switch (event.type) {
    case "retry":
      return `message ${event.id ?? "without an id"} failed (attempt ${event.attempts}): ${event.error}; next try in ${formatMs(event.delayMs)}`;
    case "dead":
      return `message ${event.id ?? "without an id"} is put aside after ${plural(event.attempts, "attempt")}: ${event.error}`;
    case "outage":
      return `the broker, or what handlers need, is out (${event.error}); next try in ${formatMs(event.delayMs)}`;
    case "recovered":
      return "goes on";
    case "stopped":
      return "stopped";
  }
}

export function inboxSentence({ id, messageType, version, known }: InboxEvent): string {
  return `message ${id} waits: ${messageType} has version ${version}, and this process knows it up to version ${known}`;
}

export function reconcilerSentence(event: ReconcilerEvent): string {
  if (event.type === "failed") return `a run failed: ${event.error}`;
  return `found ${event.found}, enqueued ${plural(event.enqueued, "missing message")} in ${formatMs(event.ms)}`;
}

export function maintenanceSentence(event: MaintenanceEvent): string {
  if (event.type === "failed") return `maintenance failed: ${event.error}`;
  const what = maintained(event.report);
  return what === "" ? "nothing to maintain" : what;
}

export function wakeUpSentence(event: WakeUpEvent): string {
  if (event.type === "wake_up_started") return "wakes relays up when messages come";
  const then = event.again ? "relays poll until it is back" : "relays go on by polling";
  return `the wake-up was lost (${event.error}): ${then}`;
}
