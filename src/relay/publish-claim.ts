import { backoffMs } from "../core/backoff.ts";
import { orderOf } from "../core/batch-results.ts";
import { operation } from "../core/channels.ts";
import type { Claim, Outcome, PublishProgress, PublishResult, QueueSession } from "../core/contracts.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import { whyUnreadable } from "../core/readable-message.ts";
import { isLeaseLost, leaseSignal, type LeaseSignal } from "./lease-signal.ts";
import type { PublishOperation } from "../core/events.ts";
import type { RelaySettings } from "./relay-options.ts";
import type { RouteOutages } from "./route-outages.ts";
import type { TargetOutage } from "./target-outage.ts";
import { ToldResults } from "./told-results.ts";

const PUBLISHED: Outcome = { status: "published" };
const WAITING: Outcome = { status: "waiting" };
const RUNNING: Outcome = { status: "running" };

const publishOperation = operation<PublishOperation>("relay", "publish");

/** By message; undefined: nothing is known of it. */
type Results = readonly (PublishResult | { readonly status: "running" } | undefined)[];
type TargetOut = { readonly error: unknown; readonly retryAfterMs: number | undefined };

export interface ClaimStop {
  /** No new attempts after this. */
  readonly stopping: AbortSignal;
  /** Give up what is under way. */
  readonly giveUp: AbortSignal;
}

/** What a publication works with. */
export interface PublicationContext {
  readonly session: QueueSession;
  readonly settings: RelaySettings;
  readonly stop: ClaimStop;
  readonly target: TargetOutage;
  readonly routes: RouteOutages;
}

export interface Publication {
  /** One per message; of a new claim fewer when asked to stop. */
  readonly outcomes: Outcome[];
  /** Attempts that go on; their outcome here is `running`. */
  readonly running: readonly { readonly index: number; readonly outcome: Promise<Outcome> }[];
}

/**
 * Publishes a claim and says what became of each message. While the target is out it waits and tries again what is
 * left; asked to stop, it returns the outcomes of the leading messages that are done.
 */
export async function publishClaim(claim: Claim, context: PublicationContext): Promise<Publication> {
  if (claim.crashes >= context.settings.maxCrashes) return { outcomes: [byCrashes(claim, context)], running: [] };
  return new ClaimPublication(claim, context).run();
}

class ClaimPublication {
  readonly #claim: Claim;
  readonly #context: PublicationContext;
  readonly #settings: RelaySettings;
  readonly #outcomes: (Outcome | undefined)[];
  readonly #running: { index: number; outcome: Promise<Outcome> }[] = [];
  /** Keys with a message that did not go through: nothing of theirs may follow, unless the stream needs no order. */
  readonly #failed = new Set<string>();
  /** Failed keys of the present round. */
  readonly #failedNow = new Set<string>();

  constructor(claim: Claim, context: PublicationContext) {
    this.#claim = claim;
    this.#context = context;
    this.#settings = context.settings;
    this.#outcomes = Array.from({ length: claim.messages.length });
  }

  async run(): Promise<Publication> {
    const { stop, target } = this.#context;
    const { stopping } = stop;
    // The target may have been found unreachable while this was claimed, and again during the wait.
    while (target.leftMs > 0 && !stopping.aborted) await this.#rest(target.leftMs);
    let left = this.#admitted();
    while (left.length > 0) {
      const wave = this.#settings.publisher.keepsKeyOrder ? left : this.#oneEach(left);
      const before = left.length;
      const begunAt = this.#settings.clock.monotonic();
      let out = await this.#publish(wave);
      left = left.filter((i) => this.#outcomes[i] === undefined);
      if (out === undefined && left.length === before) out = noProgress();
      if (out !== undefined && left.length > 0) {
        if (out !== "lease over") await this.#waitOut(out);
        // The wait may have been long: another process may have the lease by now.
        const admitted = this.#admitted();
        left = left.filter((i) => admitted.includes(i));
      } else if (out === undefined) {
        this.#context.target.over(begunAt);
      }
      if (stopping.aborted && left.length > 0) break;
    }
    if (left.length > 0) await this.#stopped(left);
    const end = this.#outcomes.indexOf(undefined);
    const outcomes = (end === -1 ? this.#outcomes : this.#outcomes.slice(0, end)) as Outcome[];
    return { outcomes, running: this.#running };
  }

  /**
   * Asked to stop with messages left. Those of failed keys go on waiting. A new claim ends before what is left at its end;
   * what is left in front of a message that went out or failed waits from now on with its key, or that one would go out
   * again.
   */
  async #stopped(left: readonly number[]): Promise<void> {
    for (const { index, outcome } of this.#claim.kind === "new" ? this.#running.splice(0) : []) {
      this.#outcomes[index] = await outcome;
    }
    const last = this.#outcomes.findLastIndex((outcome) => (outcome ?? WAITING).status !== "waiting");
    for (const i of left) if (this.#claim.kind === "retry" || i < last) this.#outcomes[i] ??= WAITING;
  }

  #admitted(): number[] {
    const admitted = this.#context.session.admit(this.#claim);
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
  async #publish(indices: readonly number[]): Promise<TargetOut | "lease over" | undefined> {
    const { messages, alone } = this.#claim;
    const { session, stop, settings } = this.#context;
    this.#failedNow.clear();
    const batch = indices.length === messages.length ? messages : indices.map((i) => messages[i]!);
    const lease = leaseSignal(session, this.#claim, settings.clock, stop.giveUp);
    // A message that is tried alone is waited for: if the process dies, this message is to blame.
    const told = alone ? undefined : new ToldResults(batch.length);
    let results: Results;
    let thrown: TargetOut | undefined;
    try {
      if (this.#leaseLost) throw leaseRanOut(settings.name);
      results = await this.#sendTold(batch, lease, told);
      if (results.length !== batch.length) throw wrongResults(batch.length, results.length);
    } catch (error) {
      lease.dispose();
      if (this.#leaseLost) throw leaseRanOut(settings.name);
      // Results that were told before the error still count.
      results = told?.ended() ?? [];
      thrown = { error: error ?? new Error("The publisher threw nothing"), retryAfterMs: undefined };
    }
    const out = this.#note(indices, results, told) ?? thrown;
    if (thrown !== undefined && this.#declareUnreadableDead(indices)) return undefined;
    // A lease that is over says nothing of the target: the next round sees it.
    return out !== undefined && this.#leaseLost ? "lease over" : out;
  }

  get #leaseLost(): boolean {
    return isLeaseLost(this.#context.session, this.#claim, this.#settings.clock);
  }

  /**
   * After a publisher threw: a message that cannot be read may be the cause, and would be it every time. True when
   * there was one.
   */
  #declareUnreadableDead(indices: readonly number[]): boolean {
    let found = false;
    const undecided = new Set<string | undefined>();
    for (const i of indices) {
      if (this.#outcomes[i] !== undefined) continue;
      const message = this.#claim.messages[i]!;
      const key = this.#keyOf(message);
      const error = whyUnreadable(message);
      if (error === undefined) {
        undecided.add(key);
        continue;
      }
      found = true;
      // Its turn comes when what is before it in its key has gone through.
      const waits = key !== undefined && undecided.has(key);
      this.#outcomes[i] = waits ? WAITING : this.#failure(i, true, error);
      this.#holdLater(i);
    }
    return found;
  }

  /** The results, as soon as every message has one or takes long. */
  async #sendTold(batch: readonly Message[], lease: LeaseSignal, told: ToldResults | undefined): Promise<Results> {
    const send = async (): Promise<Results> => {
      const ended = this.#send(batch, lease, told);
      return (await (told === undefined ? ended : Promise.race([ended, told.all]))) ?? told!.goOn(ended);
    };
    if (!publishOperation.isHeard) return send();
    const { name: relay, publisher } = this.#settings;
    const { system } = publisher;
    const event: PublishOperation = { relay, system, kind: this.#claim.kind, messages: batch };
    return publishOperation.run(event, async () => {
      try {
        const results = await send();
        event.results = results.map((result, n) =>
          result?.status === "running" ? { status: "running", ended: told!.late(n) } : result,
        );
        return results;
      } catch (error) {
        if (told !== undefined) event.results = told.ended();
        throw error;
      }
    });
  }

  async #send(
    batch: readonly Message[],
    lease: LeaseSignal,
    told: ToldResults | undefined,
  ): Promise<readonly PublishResult[]> {
    const { kind } = this.#claim;
    const mayBegin = (): boolean => lease.mayBegin();
    const progress: PublishProgress = told === undefined ? { kind, mayBegin } : { kind, mayBegin, onResult: told.tell };
    try {
      return await this.#settings.publisher.publish(batch, lease.signal, progress);
    } finally {
      lease.dispose();
    }
  }

  #note(indices: readonly number[], results: Results, told: ToldResults | undefined): TargetOut | undefined {
    let out: TargetOut | undefined;
    for (let n = 0; n < results.length; n++) {
      const result = results[n];
      const i = indices[n]!;
      if (result === undefined) continue;
      // Whatever its result is: a message behind one of its key that did not go through has to wait.
      if (result.status !== "published" && this.#isBehindFailed(i)) {
        this.#outcomes[i] = WAITING;
        continue;
      }
      if (result.status === "running") {
        this.#hold(i);
        this.#outcomes[i] = RUNNING;
        this.#running.push({ index: i, outcome: told!.late(n).then((late) => this.#lateOutcome(i, late)) });
      } else if (result.status === "unavailable" && result.route === undefined) {
        out = this.#targetOut(i, result) ?? out;
      } else {
        this.#outcomes[i] = this.#outcomeOf(i, result);
      }
    }
    return out;
  }

  /** An earlier message of its key did not go through, and its stream needs order. */
  #isBehindFailed(i: number): boolean {
    const key = this.#keyOf(this.#claim.messages[i]!);
    return key !== undefined && this.#failed.has(key);
  }

  /** Undefined: it goes again with the next round. */
  #outcomeOf(i: number, result: PublishResult): Outcome | undefined {
    switch (result.status) {
      case "published": {
        const route = this.#claim.routes?.[i];
        if (route !== undefined) this.#context.routes.back(route);
        return PUBLISHED;
      }
      case "held": {
        return this.#isBehindFailed(i) ? WAITING : undefined;
      }
      case "unavailable":
        return this.#postponed(i, result.route!, result);
      default:
        return this.#failure(i, result.status === "rejected", result.error);
    }
  }

  #lateOutcome(i: number, result: PublishResult): Outcome {
    if (result.status === "unavailable" && result.route === undefined) {
      const error = result.error ?? new Error("The publisher is unavailable");
      const delayMs = this.#context.target.found(error, result.retryAfterMs);
      return { status: "postponed", error: describeError(error), delayMs, route: undefined };
    }
    return this.#outcomeOf(i, result) ?? WAITING;
  }

  /** The target is out for a message, unless that only was not tried behind a failed one of its key. */
  #targetOut(i: number, { error, retryAfterMs }: { error?: unknown; retryAfterMs?: number | undefined }) {
    const message = this.#claim.messages[i]!;
    const ordered = this.#keyOf(message) !== undefined;
    const failed = ordered ? this.#failed : this.#failedNow;
    if (error === undefined && failed.has(orderOf(message) ?? "")) {
      if (ordered) this.#outcomes[i] = WAITING;
      return undefined;
    }
    return { error: error ?? new Error("The publisher is unavailable"), retryAfterMs };
  }

  #postponed(i: number, route: string, result: { error?: unknown; retryAfterMs?: number | undefined }): Outcome {
    this.#hold(i);
    const delayMs = this.#context.routes.out(route, result.error, result.retryAfterMs);
    const error = `${route} is out: ${describeError(result.error ?? "no reason was given")}`;
    return { status: "postponed", error, delayMs, route };
  }

  #failure(i: number, rejected: boolean, cause: unknown): Outcome {
    const { name, maxAttempts, backoff, onDead, emit } = this.#settings;
    const message = this.#claim.messages[i]!;
    const attempts = (this.#claim.attempts?.[i] ?? 0) + 1;
    const error = describeError(cause);
    this.#hold(i);
    const { id, position } = message;
    if (rejected || attempts >= maxAttempts) {
      const block = this.#keyOf(message) !== undefined && onDead(message.stream) === "block";
      return { status: "dead", error, attempts, block };
    }
    const delayMs = backoffMs(attempts, backoff);
    emit({ type: "retry", relay: name, id, position, attempts, delayMs, error });
    return { status: "retry", error, attempts, delayMs };
  }

  /** The message did not go through: what comes behind it in its key waits. */
  #hold(i: number): void {
    const message = this.#claim.messages[i]!;
    const order = orderOf(message);
    if (order === undefined) return;
    this.#failed.add(order);
    this.#failedNow.add(order);
    // The publisher has not been given them yet.
    if (!this.#settings.publisher.keepsKeyOrder) this.#holdLater(i);
  }

  #holdLater(i: number): void {
    const key = this.#keyOf(this.#claim.messages[i]!);
    if (key === undefined) return;
    for (let later = i + 1; later < this.#outcomes.length; later++) {
      if (this.#outcomes[later] === undefined && this.#keyOf(this.#claim.messages[later]!) === key)
        this.#outcomes[later] = WAITING;
    }
  }

  async #waitOut({ error, retryAfterMs }: TargetOut): Promise<void> {
    // Given up at the deadline of a stop: that says nothing of the target.
    if (this.#context.stop.giveUp.aborted) return;
    await this.#rest(this.#context.target.found(error, retryAfterMs));
  }

  async #rest(delayMs: number): Promise<void> {
    const { session, stop } = this.#context;
    await session.pauseAttempt(this.#claim);
    await this.#settings.clock.sleep(delayMs, stop.stopping);
    if (!stop.stopping.aborted) await session.resumeAttempt(this.#claim);
  }

  #keyOf(message: Message): string | undefined {
    return message.key === null || this.#settings.unordered.includes(message.stream) ? undefined : orderOf(message);
  }
}

function byCrashes(claim: Claim, { session, settings }: PublicationContext): Outcome {
  const admitted = session.admit(claim);
  if (admitted !== "all" && admitted[0] !== true) return WAITING;
  const message = claim.messages[0]!;
  const attempts = (claim.attempts?.[0] ?? 0) + claim.crashes;
  const error = `The process died ${claim.crashes} times with this message in hand`;
  const ordered = message.key !== null && !settings.unordered.includes(message.stream);
  return { status: "dead", error, attempts, block: ordered && settings.onDead(message.stream) === "block" };
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

function noProgress(): TargetOut {
  const error = new Error("The publisher held back every message, though none before them had failed");
  return { error, retryAfterMs: undefined };
}
