import type { ClaimKind, Clock, JoinOptions, Outcome, QueueSession, SessionState } from "../core/contracts.ts";
import { errorCode } from "../core/errors.ts";
import { Mutex } from "../core/mutex.ts";
import { planBalance } from "./balance.ts";
import { BlockedKeys, type BlockedKey } from "./blocked-keys.ts";
import { Caution } from "./caution.ts";
import { ClaimTurns } from "./claim-turns.ts";
import { ClaimsInHand, type LaneClaim } from "./claims-in-hand.ts";
import { LaneHold } from "./lane-hold.ts";
import type { Blame, Limit, LanePort, NoPage, ParkedPage, Part, Stored, View } from "./lane-port.ts";
import { leaseLost, tooSlow } from "./relay-errors.ts";
import { RetrySize } from "./retry-size.ts";
import { Settler } from "./settler.ts";

/** Lanes that could not be given back are given at this pace. */
const GIVE_AGAIN_MS = 100;
/** And not for longer than this: what ends meanwhile, such as a pool, does not come back. */
const MOST_GIVING_MS = 3000;

/** So often one claim loads everything anew. */
const MOST_LOSSES = 3;

/** Errors of `tend` after which nothing in hand counts. */
const FATAL = new Set(["relay_dropped", "restored_copy", "row_security", "standby"]);

/**
 * A relay process's work on its lanes, the same over every store: it claims, settles, and looks at the other processes.
 */
export class LaneSession<P extends Part, S extends Stored, M> implements QueueSession {
  readonly #port: LanePort<P, S, M>;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  readonly #keys: BlockedKeys;
  readonly #caution: Caution<P> = new Caution();
  readonly #claims: ClaimsInHand<P, S, M> = new ClaimsInHand();
  readonly #carefulTurns: ClaimTurns = new ClaimTurns();
  readonly #settler: Settler<P, S, M>;
  readonly #hold: LaneHold<P, S, M>;
  /** Claims of one kind are made one after another; the two kinds run beside each other. */
  readonly #turns: Record<ClaimKind, Mutex> = { new: new Mutex(), retry: new Mutex() };
  #ending = false;
  #left = false;
  #paused = false;
  /** How many messages a claim takes at most: less than a batch while the server is slow. */
  readonly #retrySize: RetrySize;
  #limit: number;
  #scheduledDueAt: number | undefined;

  constructor(port: LanePort<P, S, M>, options: JoinOptions, clock: Clock) {
    this.#port = port;
    this.#options = options;
    this.#clock = clock;
    this.#retrySize = new RetrySize(port.keysPerClaim);
    this.#limit = options.batch.messages;
    this.#keys = new BlockedKeys(options.unordered);
    this.#settler = new Settler({
      port,
      clock,
      keys: this.#keys,
      caution: this.#caution,
      validUntil: () => this.#hold.validUntil,
      mayOpenNext: () => this.#mayOpenNext(),
      oldestInHand: () => this.#claims.oldest,
      handedOut: () => this.#claims.handedOut,
      leaseLost: () => leaseLost(options.relay),
      onFailure: (error) => {
        if (port.isSlow(error)) this.#askForLess();
        this.#hold.invalidate();
      },
      // Only a write that succeeds shows that the batch was not too large.
      onWritten: () => (this.#limit = Math.min(options.batch.messages, this.#limit * 2)),
    });
    const memory = { keys: this.#keys, caution: this.#caution, claims: this.#claims, settler: this.#settler };
    this.#hold = new LaneHold(port, options, clock, memory);
  }

  get validUntil(): number {
    return this.#hold.validUntil;
  }

  get isTold(): boolean {
    return this.#port.isTold;
  }

  isCurrent(claim: LaneClaim<P, S, M>): boolean {
    return this.#hold.isCurrent(claim);
  }

  async join(): Promise<void> {
    await this.#port.open();
    try {
      await this.#exclusively(() => this.#hold.enter());
      // First for the lanes, then for what waits in them.
      for (let look = 1; look <= 2; look++) {
        await this.tend();
        await this.#exclusively(() => this.#hold.doChores());
      }
    } catch (error) {
      // A process that was refused must not count as one to share lanes with.
      await this.#port.give(this.#hold.parts, "all").catch(() => undefined);
      throw error;
    }
  }

  // ── Claiming ──────────────────────────────────────────────────────────────────────────────────────────────────

  async claim(kind: ClaimKind): Promise<LaneClaim<P, S, M> | undefined> {
    for (let losses = 0; ;) {
      if (this.#ending) return undefined;
      // What is loaded is lost at once, again and again: the relay has to know, and to wait.
      if (this.#hold.isStale && ++losses > MOST_LOSSES) throw leaseLost(this.#options.relay);
      if (this.#hold.isBehind && !(await this.#exclusively(() => this.#hold.catchUp()))) return undefined;
      // A careful owner has one claim in hand, of either kind.
      const careful = this.#isCareful;
      const claim = async () =>
        this.#hold.isBehind || this.#isCareful !== careful ? "again" : this.#claimCurrent(kind);
      const claimed = await (careful ? this.#exclusively(claim) : this.#turns[kind].run(claim));
      if (claimed !== "again") return claimed;
    }
  }

  get #isCareful(): boolean {
    return this.#caution.isCareful;
  }

  async #claimCurrent(kind: ClaimKind): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    if (this.#ending || this.#paused || this.#hold.parts.length === 0) return undefined;
    if (this.#isCareful && !this.#isTurnOf(kind)) return undefined;
    try {
      const claim = await (kind === "new" ? this.#claimNew() : this.#claimParked());
      if (typeof claim === "object") this.#carefulTurns.begun(kind, this.#clock.monotonic());
      return claim;
    } catch (error) {
      // Something may have been claimed although the answer was lost. Messages in hand are settled first: otherwise
      // they would be sent again.
      this.#hold.enterSoon();
      throw error;
    }
  }

  /** One claim in hand, by turns. Attempts beside the claims count only while it has to be known which message kills. */
  #isTurnOf(kind: ClaimKind): boolean {
    const now = this.#clock.monotonic();
    const isFree = this.#claims.emptyButForAttempts && !this.#settler.busy;
    const wants = (other: ClaimKind) => other === "new" || (this.nextRetryAt() ?? Infinity) <= now;
    return this.#carefulTurns.ask(kind, now, isFree, wants);
  }

  /** Beside an attempt that goes on it is unknown which message kills, unless one is known for it. */
  #blame(kind: ClaimKind): Blame {
    if (!this.#isCareful || this.#caution.limit(kind) !== 1) return "none";
    return this.#claims.empty ? "any" : "known";
  }

  async #claimNew(): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    // Two empty pages of each part: the second was begun within this call, so all that was there before it is handed out.
    for (let left = 2 * this.#hold.parts.length; left > 0; left--) {
      if (this.#hold.isBehind) return "again";
      if (this.#isFull || this.#ending) return undefined;
      const generation = this.#hold.generation;
      const blame = this.#blame("new");
      const page = await this.#port.readNew(this.#hold.parts, this.#limits("new"), blame);
      if (this.#ending) return undefined;
      if (generation !== this.#hold.generation) return "again";
      if (typeof page === "string") return this.#noPage(page);
      const { messages, attempts, part, mark } = page;
      const own = { attempts, ...blamed(blame, page), page: { mark } };
      const claim = this.#newClaim("new", part, messages, own, []);
      this.#claims.add(claim);
      if (messages.length > 0) return claim;
      if (!this.#claims.isNext(claim)) return undefined;
      // A failed write has made everything void.
      await Promise.allSettled(this.#settleEmpty());
    }
    return undefined;
  }

  async #claimParked(): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    const blame = this.#blame("retry");
    // One claim belongs to one part, so that one write can settle it.
    let part: P | undefined;
    const accept = ({ lane }: BlockedKey) => this.#hold.partOf(lane) === (part ??= this.#hold.partOf(lane));
    const most = Math.min(this.#retrySize.keys, this.#caution.mostKeys ?? this.#retrySize.keys);
    const due = this.#keys.due(this.#clock.monotonic(), most, accept);
    // Those that have been due for longest: an owner may have died of one of them, while others were tried since.
    const keys = blame !== "none" ? due.filter(({ dueAt }) => dueAt === due[0]!.dueAt) : due;
    try {
      return part === undefined ? undefined : await this.#drain(part, keys, blame);
    } finally {
      for (const key of due) if (!key.draining) this.#keys.schedule(key);
    }
  }

  async #drain(part: P, keys: readonly BlockedKey[], blame: Blame): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    const generation = this.#hold.generation;
    const parked = new Map(keys.map((key) => [key, key.parked]));
    const page = await this.#port.readParked(part, keys, this.#limits("retry"), blame);
    if (this.#ending) return undefined;
    if (generation !== this.#hold.generation) return "again";
    if (typeof page === "string") return this.#noPage(page);
    this.#noteParked(part, page, parked);
    const { messages, keys: entries, attempts, errors } = page;
    if (messages.length === 0) return undefined;
    const held = [...new Set(entries)];
    for (const key of held) key.draining = true;
    const waitsFor = entries.map(({ route }) => route);
    const routes = waitsFor.some((route) => route !== undefined) ? waitsFor : undefined;
    const own = { attempts, errors, routes, ...blamed(blame, page), page: undefined };
    const claim = this.#newClaim("retry", part, messages, own, entries);
    this.#claims.add(claim);
    return claim;
  }

  /** What a read of parked messages says of keys that have none to hand out. */
  #noteParked(part: P, page: ParkedPage<S>, parked: ReadonlyMap<BlockedKey, number>): void {
    const now = this.#clock.monotonic();
    const freed: BlockedKey[] = [];
    const found = new Set(page.keys);
    for (const [key, inMs] of page.later) key.dueAt = now + inMs;
    for (const [key, count] of page.died) {
      this.#keys.park(key, -count);
      if (key.parked === 0) freed.push(key);
    }
    for (const [key, before] of parked) {
      if (!page.complete || found.has(key) || page.later.has(key) || page.died.has(key)) continue;
      // What was parked after the read began is not in this page.
      if (key.parked !== before || key.unwritten > 0) continue;
      // The parked messages were deleted from the database.
      this.#keys.park(key, -before);
      freed.push(key);
    }
    this.#settler.free(part, freed);
  }

  async #noPage(page: NoPage): Promise<"again" | undefined> {
    switch (page) {
      case "lost":
        this.#hold.invalidate();
        return "again";
      case "slow":
        this.#hold.enterSoon();
        if (this.#limit === 1) throw tooSlow(this.#options.relay);
        this.#askForLess();
        return "again";
      case "untidy":
        this.#hold.plan(() => this.#port.tidy(this.#hold.parts));
        return "again";
      case "nothing":
        // Nothing is left that could kill its owner.
        if (this.#isIdle && this.#keys.parked === 0) {
          await Promise.allSettled(this.#caution.suspicious.map((part) => this.#settler.clearCrashes(part)));
        }
        return undefined;
    }
  }

  #askForLess(): void {
    this.#limit = Math.max(1, Math.floor(this.#limit / 4));
  }

  #newClaim(
    kind: ClaimKind,
    part: P,
    messages: readonly S[],
    own: Pick<LaneClaim<P, S, M>, "attempts" | "errors" | "routes" | "alone" | "crashes" | "page">,
    entries: readonly BlockedKey[],
  ): LaneClaim<P, S, M> {
    const keys = [...new Set(entries)];
    const generation = this.#hold.generation;
    const n = ++this.#claims.handedOut;
    const claimedAt = this.#clock.monotonic();
    const none = { detached: new Set<S>(), beside: false, ended: false };
    return { ...none, ...own, kind, messages, part, generation, keys, entries, n, claimedAt };
  }

  #limits(kind: ClaimKind): Limit {
    const { messages, bytes } = this.#options.batch;
    const careful = this.#isCareful ? this.#caution.limit(kind) : undefined;
    return { messages: Math.min(careful ?? messages, messages, this.#limit), bytes };
  }

  get #isIdle(): boolean {
    return this.#claims.empty && !this.#settler.busy;
  }

  get #isFull(): boolean {
    return this.#keys.parked >= this.#options.maxParked;
  }

  /** Not when something else has to be done between two pages. */
  #mayOpenNext(): boolean {
    const busy = this.#hold.isBehind || this.#ending || this.#paused || this.#isFull;
    return !busy && this.#caution.suspicious.length === 0;
  }

  // ── Settling ──────────────────────────────────────────────────────────────────────────────────────────────────

  admit(claim: LaneClaim<P, S, M>): readonly boolean[] | "all" {
    // Its settle would be refused, so what it publishes would be published again.
    if (!this.isCurrent(claim)) return claim.messages.map(() => false);
    if (claim.kind === "retry" || this.#keys.size === 0) return "all";
    return claim.messages.map((message) => !this.#keys.has(message));
  }

  settle(claim: LaneClaim<P, S, M>, outcomes: readonly Outcome[]): Promise<void> {
    const carried = this.#hold.carriedOver(claim);
    if (carried !== undefined) return carried.then(() => this.settle(claim, outcomes));
    claim.ended = true;
    if (claim.generation === this.#hold.generation && !this.#claims.isNext(claim)) this.#hold.invalidate();
    if (claim.generation !== this.#hold.generation) return Promise.reject(leaseLost(this.#options.relay));
    // The rest of an incomplete claim is not handed out again by this session: it goes to the next owner.
    if (outcomes.length < claim.messages.length) this.#ending = true;
    this.#claims.end(claim);
    if (claim.kind === "retry") this.#retrySize.note(outcomes, this.#clock.monotonic() - claim.claimedAt);
    const written = this.#settler.settle(claim.part, claim, outcomes);
    const { kind } = claim;
    // First of all that waits for it: whoever claims next has to know whose turn it is.
    written.then(
      () => this.#ended(kind),
      () => undefined,
    );
    // Behind what is left of an incomplete claim nothing may be settled.
    if (!this.#ending) for (const empty of this.#settleEmpty()) empty.catch(() => undefined);
    return written;
  }

  #ended(kind: ClaimKind): void {
    const isAwaited = this.#carefulTurns.ended(kind, this.#clock.monotonic());
    if (isAwaited && this.#isCareful) this.#options.onNews?.();
  }

  /** Pages of new messages without any are settled when it is their turn. */
  #settleEmpty(): Promise<void>[] {
    return this.#claims.takeEmpty().map((claim) => {
      claim.ended = true;
      return this.#settler.settle(claim.part, claim, []);
    });
  }

  detach(claim: LaneClaim<P, S, M>, index: number): LaneClaim<P, S, M> {
    const message = claim.messages[index]!;
    const current = this.isCurrent(claim);
    // Of a claim that is void, nothing counts any more.
    const key = claim.entries[index] ?? (current ? this.#keys.ensure(message) : undefined);
    const own: LaneClaim<P, S, M> = {
      ...claim,
      kind: "retry",
      messages: [message],
      attempts: [claim.attempts?.[index] ?? 0],
      errors: claim.errors && [claim.errors[index]!],
      routes: claim.routes && [claim.routes[index]],
      page: undefined,
      keys: key === undefined ? [] : [key],
      entries: key === undefined ? [] : [key],
      detached: new Set(),
      beside: true,
      ended: false,
    };
    if (key === undefined || !current) return own;
    claim.detached.add(message);
    this.#hold.carry(own);
    // Otherwise it is carried over with the claim that it was part of.
    if (claim.generation === this.#hold.generation) {
      key.draining = true;
      this.#claims.add(own);
    }
    return own;
  }

  async pauseAttempt(claim: LaneClaim<P, S, M>): Promise<void> {
    await this.#suspect(claim, false);
  }

  async resumeAttempt(claim: LaneClaim<P, S, M>): Promise<void> {
    await this.#suspect(claim, true);
  }

  async #suspect(claim: LaneClaim<P, S, M>, inHand: boolean): Promise<void> {
    if (!claim.alone) return;
    if (!this.isCurrent(claim)) throw leaseLost(this.#options.relay);
    const marked = await this.#port.suspect(claim.part, claim.messages[0]!, inHand);
    if (marked && this.isCurrent(claim)) return;
    if (this.isCurrent(claim)) this.#hold.invalidate();
    throw leaseLost(this.#options.relay);
  }

  abandon(claim: LaneClaim<P, S, M>): void {
    claim.ended = true;
    if (this.isCurrent(claim)) this.#hold.invalidate();
  }

  // ── Owning ────────────────────────────────────────────────────────────────────────────────────────────────────

  async tend(): Promise<SessionState> {
    if (!this.#left) await this.#look();
    return {
      lanes: this.#hold.parts.reduce((sum, { lanes }) => sum + lanes.length, 0),
      paused: this.#paused,
      parked: this.#keys.parked,
      blockedKeys: this.#keys.size,
      full: this.#isFull,
    };
  }

  async #look(): Promise<void> {
    const generation = this.#hold.generation;
    const sentAt = this.#clock.monotonic();
    const tended = this.#port.tend(this.#hold.parts, this.#claims.messages);
    const { view, renewed, failure } = await tended.catch((error: unknown) => {
      if (FATAL.has(errorCode(error) ?? "")) this.#hold.invalidate();
      throw error;
    });
    this.#paused = view.paused;
    // This look asked about the earlier parts: it says nothing of parts that are being loaded.
    if (generation === this.#hold.generation && !this.#hold.isStale && !this.#hold.isLoading) {
      if (renewed === true) this.#hold.extend(sentAt);
      else if (renewed === false) this.#hold.invalidate();
    }
    if (failure !== undefined) throw failure.error;
    this.#planChores(view);
    await this.#promoteDue(view.scheduledInMs);
  }

  #planChores(view: View): void {
    if (this.#hold.hasChores || this.#ending) return;
    const { take, give } = planBalance(view);
    if (take.length > 0) this.#hold.plan(() => this.#port.take(take));
    // A careful owner keeps its lanes: a message that kills must not reach an owner that is not careful.
    if (give.length > 0 && !this.#isCareful) this.#hold.plan(() => this.#port.give(this.#hold.parts, give));
    if (view.commands) this.#hold.plan(() => this.#port.carryOut(this.#hold.parts));
    if (view.outdated) this.#hold.enterSoon();
  }

  async #promoteDue(inMs: number | null): Promise<void> {
    let next = inMs;
    if (inMs !== null && inMs <= 0 && !this.#hold.isStale) {
      const promote = () => this.#port.promote(this.#hold.parts);
      if (this.#port.promotesAlone) {
        const promoting = this.#exclusively(async () => (this.#hold.isStale ? 0 : promote()));
        promoting.catch(() => undefined);
        // A claim that takes long must not keep the lease from being renewed.
        const lateMs = this.#options.leaseMs / 6;
        next = await Promise.race([promoting, this.#clock.sleep(lateMs).then(() => lateMs)]);
      } else next = await promote();
    }
    this.#scheduledDueAt = next === null ? undefined : this.#clock.monotonic() + Math.max(next, 0);
  }

  nextRetryAt(): number | undefined {
    return this.#paused ? undefined : this.#keys.nextDueAt();
  }

  nextScheduledAt(): number | undefined {
    return this.#scheduledDueAt;
  }

  async leave(): Promise<void> {
    this.#ending = true;
    await this.#settler.idle();
    // Outcomes reported from now on come too late: another process may have the messages before they are written.
    this.#hold.void();
    await this.#exclusively(async () => {
      this.#left = true;
      await this.#giveAll();
      this.#hold.invalidate();
    });
  }

  /** Again while the connection breaks: others would wait for the end of the lease. */
  async #giveAll(): Promise<void> {
    const until = Math.min(this.#hold.validUntil, this.#clock.monotonic() + MOST_GIVING_MS);
    for (;;) {
      try {
        return await this.#port.give(this.#hold.parts, "all");
      } catch (error) {
        if (!this.#port.isPassing(error) || this.#clock.monotonic() > until) throw error;
        await this.#clock.sleep(GIVE_AGAIN_MS);
      }
    }
  }

  /** With no claim under way, of either kind. */
  #exclusively<T>(run: () => Promise<T>): Promise<T> {
    return this.#turns.new.run(() => this.#turns.retry.run(run));
  }
}

function blamed(
  blame: Blame,
  { messages, crashes }: { messages: readonly unknown[]; crashes: number },
): Pick<LaneClaim<unknown, Stored, unknown>, "alone" | "crashes"> {
  const alone = messages.length === 1 && (blame === "any" || (blame === "known" && crashes > 0));
  return { alone, crashes: alone ? crashes : 0 };
}
