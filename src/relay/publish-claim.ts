import { backoffMs } from "../core/backoff.ts";
import type { Claim, Outcome, PublishResult, QueueSession } from "../core/contracts.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import { buryDead } from "./dead-letters.ts";
import { leaseSignal } from "./lease-signal.ts";
import type { RelaySettings } from "./relay-options.ts";

const PUBLISHED: Outcome = { status: "published" };
const WAITING: Outcome = { status: "waiting" };

export interface ClaimStop {
  /** No new attempts after this. */
  readonly stopping: AbortSignal;
  /** Give up what is under way. */
  readonly giveUp: AbortSignal;
}

/**
 * Publishes a claim and says what became of each message. While the target is out it waits and tries again what is
 * left; asked to stop, it returns the outcomes of the leading messages that are done.
 */
export async function publishClaim(
  claim: Claim,
  session: QueueSession,
  settings: RelaySettings,
  stop: ClaimStop,
): Promise<Outcome[]> {
  const outcomes =
    claim.crashes >= settings.maxCrashes
      ? [byCrashes(claim, session, settings)]
      : await new ClaimPublication(claim, session, settings, stop).run();
  if (outcomes.every(({ status }) => status !== "dead")) return outcomes;
  // Its copy may kill as well: then it goes without.
  const silent = claim.crashes > settings.maxCrashes ? { ...settings, deadLetters: undefined } : settings;
  const lease = leaseSignal(session, settings.clock, stop.giveUp);
  try {
    await buryDead(claim, outcomes, silent, lease.signal);
  } finally {
    lease.dispose();
  }
  return outcomes;
}

class ClaimPublication {
  readonly #claim: Claim;
  readonly #session: QueueSession;
  readonly #settings: RelaySettings;
  readonly #stop: ClaimStop;
  readonly #outcomes: (Outcome | undefined)[];
  /** Keys with a message that did not go through: nothing of theirs may follow, unless the stream needs no order. */
  readonly #failed = new Set<string>();
  /** Those of the present round. */
  readonly #failedNow = new Set<string>();
  #outages = 0;

  constructor(claim: Claim, session: QueueSession, settings: RelaySettings, stop: ClaimStop) {
    this.#claim = claim;
    this.#session = session;
    this.#settings = settings;
    this.#stop = stop;
    this.#outcomes = Array.from({ length: claim.messages.length });
  }

  async run(): Promise<Outcome[]> {
    let left = this.#admitted();
    while (left.length > 0) {
      const wave = this.#settings.publisher.keepsKeyOrder ? left : this.#oneEach(left);
      const error = await this.#publish(wave);
      left = left.filter((i) => this.#outcomes[i] === undefined);
      if (error !== undefined && left.length > 0) {
        await this.#waitOut(error);
        // Much may have happened meanwhile: the lease may be another's.
        const admitted = this.#admitted();
        left = left.filter((i) => admitted.includes(i));
      }
      if (this.#stop.stopping.aborted && left.length > 0) break;
    }
    if (this.#outages > 0 && left.length === 0) this.#settings.emit({ type: "recovered", relay: this.#settings.name });
    const end = this.#outcomes.indexOf(undefined);
    return (end === -1 ? this.#outcomes : this.#outcomes.slice(0, end)) as Outcome[];
  }

  #admitted(): number[] {
    const admitted = this.#session.admit(this.#claim);
    const indices: number[] = [];
    for (let i = 0; i < this.#outcomes.length; i++) {
      if (admitted === "all" || admitted[i] === true) indices.push(i);
      else this.#outcomes[i] ??= WAITING;
    }
    return indices;
  }

  /** The first message of each key, for publishers that cannot keep the order of a key by themselves. */
  #oneEach(left: readonly number[]): number[] {
    const seen = new Set<string>();
    return left.filter((i) => {
      const key = this.#keyOf(this.#claim.messages[i]!);
      if (key === undefined) return true;
      const first = !seen.has(key);
      seen.add(key);
      return first;
    });
  }

  /** Sends messages and notes their outcomes; the error of an outage, if there was one. */
  async #publish(indices: readonly number[]): Promise<unknown> {
    const { messages } = this.#claim;
    this.#failedNow.clear();
    const batch = indices.length === messages.length ? messages : indices.map((i) => messages[i]!);
    const lease = leaseSignal(this.#session, this.#settings.clock, this.#stop.giveUp);
    let results: readonly PublishResult[];
    try {
      if (lease.lost) throw leaseRanOut(this.#settings.name);
      results = await this.#settings.publisher.publish(batch, lease.signal);
      if (results.length !== batch.length) throw wrongResults(batch.length, results.length);
    } catch (error) {
      if (lease.lost) throw leaseRanOut(this.#settings.name);
      return error ?? new Error("The publisher threw nothing");
    } finally {
      lease.dispose();
    }
    let outage: unknown;
    for (let n = 0; n < results.length; n++) {
      const result = results[n]!;
      const i = indices[n]!;
      if (result.status === "published") this.#outcomes[i] = PUBLISHED;
      else if (result.status === "held") this.#held(i);
      else if (result.status === "unavailable") outage = this.#unavailable(i, result.error) ?? outage;
      else this.#outcomes[i] = this.#failure(i, result.status === "rejected", result.error);
    }
    return outage;
  }

  #unavailable(i: number, error: unknown): unknown {
    const message = this.#claim.messages[i]!;
    const ordered = this.#keyOf(message) !== undefined;
    const failed = ordered ? this.#failed : this.#failedNow;
    if (message.key === null || !failed.has(nameOf(message))) {
      return error ?? new Error("The publisher is unavailable");
    }
    // Held back behind a failed one of its key: it waits, or goes in the next round where order does not matter.
    if (ordered) this.#outcomes[i] = WAITING;
    return undefined;
  }

  /** Behind a failed one of its key it waits; behind one that found the target out it goes again with that. */
  #held(i: number): void {
    const message = this.#claim.messages[i]!;
    if (this.#keyOf(message) !== undefined && this.#failed.has(nameOf(message))) this.#outcomes[i] = WAITING;
  }

  #failure(i: number, rejected: boolean, cause: unknown): Outcome {
    const { name, maxAttempts, backoff, onDead, emit } = this.#settings;
    const message = this.#claim.messages[i]!;
    const attempts = (this.#claim.attempts?.[i] ?? 0) + 1;
    const error = describeError(cause);
    const key = this.#keyOf(message);
    if (message.key !== null) {
      this.#failed.add(nameOf(message));
      this.#failedNow.add(nameOf(message));
    }
    if (key !== undefined) {
      // What the publisher has not been given yet waits; so does what it held back.
      for (let later = i + 1; later < this.#outcomes.length; later++) {
        if (
          this.#outcomes[later] === undefined &&
          !this.#settings.publisher.keepsKeyOrder &&
          this.#keyOf(this.#claim.messages[later]!) === key
        ) {
          this.#outcomes[later] = WAITING;
        }
      }
    }
    const { id, position } = message;
    if (rejected || attempts >= maxAttempts) {
      return { status: "dead", error, attempts, block: key !== undefined && onDead(message.stream) === "block" };
    }
    const delayMs = backoffMs(attempts, backoff);
    emit({ type: "retry", relay: name, id, position, attempts, delayMs, error });
    return { status: "retry", error, attempts, delayMs };
  }

  async #waitOut(cause: unknown): Promise<void> {
    const { name, outageBackoff, clock, emit } = this.#settings;
    const delayMs = Math.max(10, backoffMs(++this.#outages, outageBackoff));
    emit({ type: "outage", relay: name, error: describeError(cause), attempt: this.#outages, delayMs });
    await this.#session.putDown(this.#claim);
    await clock.sleep(delayMs, this.#stop.stopping);
    if (!this.#stop.stopping.aborted) await this.#session.pickUp(this.#claim);
  }

  #keyOf(message: Message): string | undefined {
    return message.key === null || this.#settings.unordered.includes(message.stream) ? undefined : nameOf(message);
  }
}

function nameOf({ stream, key }: Message): string {
  return `${stream}\0${key}`;
}

function byCrashes(claim: Claim, session: QueueSession, settings: RelaySettings): Outcome {
  const admitted = session.admit(claim);
  if (admitted !== "all" && admitted[0] !== true) return WAITING;
  const message = claim.messages[0]!;
  const attempts = (claim.attempts?.[0] ?? 0) + claim.crashes;
  const error = `The process died ${claim.crashes} times with this message in hand`;
  return {
    status: "dead",
    error,
    attempts,
    block:
      message.key !== null &&
      !settings.unordered.includes(message.stream) &&
      settings.onDead(message.stream) === "block",
  };
}

function leaseRanOut(relay: string): TxboxError {
  return new TxboxError("lease_lost", `Relay "${relay}": the lease ran out before the messages were sent`, {
    retryable: true,
  });
}

function wrongResults(wanted: number, got: number): TxboxError {
  return new TxboxError("invalid_option", `The publisher returned ${got} results for ${wanted} messages`, {
    field: "publisher",
    fix: "Return one result per message, in order",
  });
}
