import type { RelayEvent } from "../core/events.ts";
import { formatMs, plural } from "./format-values.ts";
import type { Output } from "./output.ts";

const PROGRESS_MS = 5000;

/** Tells what relays do: every event as NDJSON, or lines for people with the batches summed up. */
export class RelayReporter {
  readonly #output: Output;
  readonly #timer: NodeJS.Timeout;
  readonly #sums = new Map<string, { published: number; retried: number; dead: number }>();
  #since = performance.now();
  #givenUpAt = Number.POSITIVE_INFINITY;

  constructor(output: Output) {
    this.#output = output;
    this.#timer = setInterval(() => this.#progress(), PROGRESS_MS);
    this.#timer.unref();
  }

  readonly report = (event: RelayEvent): void => {
    // What is cut off by the end of a stop has lost no lease and is tried no more here.
    if (performance.now() >= this.#givenUpAt && (event.type === "lease_lost" || event.type === "outage")) return;
    if (this.#output.json) {
      const error = "error" in event ? { error: this.#output.secrets.hide(event.error) } : {};
      this.#output.line({ at: new Date().toISOString(), ...event, ...error });
      return;
    }
    if (event.type === "batch") this.#add(event);
    else this.#output.note(`${new Date().toISOString()} ${event.relay}: ${sentence(event)}`);
  };

  /** A stop was asked for: what is in hand after this time is given up. */
  stopping(deadlineMs: number): void {
    this.#givenUpAt = performance.now() + deadlineMs;
  }

  /** `tell` what was not told yet. */
  end({ tell }: { tell: boolean }): void {
    clearInterval(this.#timer);
    if (tell && !this.#output.json) this.#progress();
  }

  #add({ relay, published, retried, dead }: Extract<RelayEvent, { type: "batch" }>): void {
    const sum = this.#sums.get(relay) ?? { published: 0, retried: 0, dead: 0 };
    this.#sums.set(relay, {
      published: sum.published + published,
      retried: sum.retried + retried,
      dead: sum.dead + dead,
    });
  }

  #progress(): void {
    const seconds = Math.max(0.001, (performance.now() - this.#since) / 1000);
    this.#since = performance.now();
    for (const [relay, { published, retried, dead }] of this.#sums) {
      const rate = Math.round(published / seconds).toLocaleString("en-US");
      const rest = retried + dead === 0 ? "" : `, ${retried} to be retried, ${dead} dead`;
      this.#output.note(
        `${new Date().toISOString()} ${relay}: published ${plural(published, "message")} (${rate}/s)${rest}`,
      );
    }
    this.#sums.clear();
  }
}

function sentence(event: Exclude<RelayEvent, { type: "batch" }>): string {
  switch (event.type) {
    case "started":
      return `started as ${event.owner}`;
    case "stopped":
      return "stopped";
    case "lanes":
      return `works on ${event.lanes} of 64 lanes`;
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

function maintained({
  rotated,
  droppedSegments,
  heldBackBy,
  archiveError,
}: Extract<RelayEvent, { type: "maintained" }>["report"]): string {
  const parts: string[] = [];
  if (rotated) parts.push("began a new segment");
  if (droppedSegments.length > 0) parts.push(`dropped ${droppedSegments.join(", ")}`);
  if (heldBackBy.length > 0) parts.push(`kept old segments for ${heldBackBy.join(", ")}`);
  if (archiveError !== undefined) parts.push(archiveError);
  return parts.join("; ");
}
