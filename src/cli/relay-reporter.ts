import type { RelayEvent } from "../core/events.ts";
import { relaySentence } from "../observability/event-sentences.ts";
import { plural } from "./format-values.ts";
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
    else this.#output.note(`${new Date().toISOString()} ${event.relay}: ${relaySentence(event)}`);
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
