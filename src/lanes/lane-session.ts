import type { ClaimKind, Clock, JoinOptions, Outcome, QueueSession, SessionState } from "../core/contracts.ts";
import { errorCode } from "../core/errors.ts";
import { Mutex } from "../core/mutex.ts";
import { planBalance } from "./balance.ts";
import { BlockedKeys, type BlockedKey } from "./blocked-keys.ts";
import { Caution } from "./caution.ts";
import { ClaimsInHand, type LaneClaim } from "./claims-in-hand.ts";
import type { Entered, Limit, LanePort, NoPage, ParkedPage, Part, Stored, View } from "./lane-port.ts";
import { leaseLost, tooSlow } from "./relay-errors.ts";
import { Settler } from "./settler.ts";

/** The part of a lease in which messages may be published: the rest is for what was sent before its end. */
const USABLE = 0.8;
/** Lanes change hands and commands are carried out after this time, though attempts that take long go on. */
const PATIENCE_MS = 1000;
/** Errors of `tend` after which nothing in hand counts. */
const FATAL = new Set(["relay_dropped", "restored_copy", "row_security", "standby"]);

type Chore = () => Promise<void>;

/**
 * A relay process's hold on its lanes, the same over every store. What is in memory is of one load: when its fence falls
 * or an answer is lost, it is loaded anew and every claim of before is void.
 */
export class LaneSession<P extends Part, S extends Stored, M> implements QueueSession {
  readonly #port: LanePort<P, S, M>;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  readonly #keys: BlockedKeys;
  readonly #caution: Caution<P> = new Caution();
  readonly #claims: ClaimsInHand<P, S, M> = new ClaimsInHand();
  readonly #settler: Settler<P, S, M>;
  /** Claims of a kind come one after another, those of the two kinds beside each other. */
  readonly #turns: Record<ClaimKind, Mutex> = { new: new Mutex(), retry: new Mutex() };
  #parts: readonly P[] = [];
  /** Rises with every load: claims of an older one are void. */
  #generation = 0;
  #stale = true;
  #validUntil = 0;
  #ending = false;
  #left = false;
  #paused = false;
  /** How many messages a claim takes at most: less than a batch while the server is slow. */
  #limit: number;
  #chores: Chore[] = [];
  /** Since when chores wait for claims in hand. */
  #choresSince: number | undefined;
  /** Everything is being loaded. */
  #loading = false;
  /** Attempts that go on while chores are done; what is reported of them waits for the end of those. */
  #carried: { readonly claims: Set<LaneClaim<P, S, M>>; readonly done: Promise<void> } | undefined;
  #scheduledDueAt: number | undefined;

  constructor(port: LanePort<P, S, M>, options: JoinOptions, clock: Clock) {
    this.#port = port;
    this.#options = options;
    this.#clock = clock;
    this.#limit = options.batch.messages;
    this.#keys = new BlockedKeys(options.unordered);
    this.#settler = new Settler({
      port,
      clock,
      keys: this.#keys,
      caution: this.#caution,
      validUntil: () => this.#validUntil,
      mayOpenNext: () => this.#mayOpenNext(),
      oldestInHand: () => this.#claims.oldest,
      handedOut: () => this.#claims.handedOut,
      leaseLost: () => leaseLost(options.relay),
      onFailure: (error) => {
        if (port.isSlow(error)) this.#askForLess();
        this.#invalidate();
      },
      // Only what could be written shows that it was not too much.
      onWritten: () => (this.#limit = Math.min(options.batch.messages, this.#limit * 2)),
    });
  }

  get validUntil(): number {
    return this.#validUntil;
  }

  isCurrent(claim: LaneClaim<P, S, M>): boolean {
    return claim.generation === this.#generation || this.#carried?.claims.has(claim) === true;
  }

  async join(): Promise<void> {
    await this.#port.open();
    try {
      await this.#exclusively(() => this.#enter());
      // First for the lanes, then for what waits in them.
      for (let look = 1; look <= 2; look++) {
        await this.tend();
        await this.#exclusively(() => this.#doChores());
      }
    } catch (error) {
      // A process that was refused must not count as one to share lanes with.
      await this.#port.give(this.#parts, "all").catch(() => undefined);
      throw error;
    }
  }

  // ── Claiming ──────────────────────────────────────────────────────────────────────────────────────────────────

  async claim(kind: ClaimKind): Promise<LaneClaim<P, S, M> | undefined> {
    for (;;) {
      if (this.#ending) return undefined;
      if (this.#isBehind && !(await this.#exclusively(() => this.#catchUp()))) return undefined;
      // A careful owner has one claim in hand, of either kind.
      const careful = this.#isCareful;
      const claim = async () => (this.#isBehind || this.#isCareful !== careful ? "again" : this.#claimCurrent(kind));
      const claimed = await (careful ? this.#exclusively(claim) : this.#turns[kind].run(claim));
      if (claimed !== "again") return claimed;
    }
  }

  get #isCareful(): boolean {
    return this.#caution.limit !== undefined;
  }

  get #isBehind(): boolean {
    return this.#stale || this.#chores.length > 0;
  }

  /** Loads what is stale and does what has to be done between claims; false while claims in hand keep it from that. */
  async #catchUp(): Promise<boolean> {
    if (this.#stale) await this.#enter();
    if (this.#chores.length === 0) return true;
    const now = this.#clock.monotonic();
    this.#choresSince ??= now;
    if (this.#claims.hasNew) return false;
    if (this.#claims.hasRetry && now - this.#choresSince <= PATIENCE_MS) return false;
    await this.#doChores();
    return true;
  }

  async #claimCurrent(kind: ClaimKind): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    if (this.#ending || this.#paused || this.#parts.length === 0) return undefined;
    if (this.#isCareful && !this.#isIdle) return undefined;
    try {
      return await (kind === "new" ? this.#claimNew() : this.#claimParked());
    } catch (error) {
      // Something may have been claimed though the answer was lost. What is in hand is settled first, or it would go again.
      this.#enterSoon();
      throw error;
    }
  }

  async #claimNew(): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    // Two empty pages of each part: the second was begun within this call, so all that was there before it is handed out.
    for (let left = 2 * this.#parts.length; left > 0; left--) {
      if (this.#isBehind) return "again";
      if (this.#isFull || this.#ending) return undefined;
      const generation = this.#generation;
      const alone = this.#caution.limit === 1;
      const page = await this.#port.readNew(this.#parts, this.#limits, alone);
      if (this.#ending) return undefined;
      if (generation !== this.#generation) return "again";
      if (typeof page === "string") return this.#noPage(page);
      const { messages, attempts, part, mark } = page;
      const crashes = alone ? page.crashes : 0;
      const own = { attempts, alone: alone && messages.length === 1, crashes, page: { mark } };
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
    const alone = this.#caution.limit === 1;
    // One claim belongs to one part, so that one write can settle it.
    let part: P | undefined;
    const accept = ({ lane }: BlockedKey) => this.#partOf(lane) === (part ??= this.#partOf(lane));
    const keys = this.#keys.due(this.#clock.monotonic(), this.#port.keysPerClaim, accept);
    try {
      return part === undefined ? undefined : await this.#drain(part, keys, alone);
    } finally {
      for (const key of keys) if (!key.draining) this.#keys.schedule(key);
    }
  }

  async #drain(
    part: P,
    keys: readonly BlockedKey[],
    alone: boolean,
  ): Promise<LaneClaim<P, S, M> | "again" | undefined> {
    const generation = this.#generation;
    const parked = new Map(keys.map((key) => [key, key.parked]));
    const page = await this.#port.readParked(part, keys, this.#limits, alone);
    if (this.#ending) return undefined;
    if (generation !== this.#generation) return "again";
    if (typeof page === "string") return this.#noPage(page);
    this.#noteParked(part, page, parked);
    const { messages, keys: entries, attempts, errors } = page;
    if (messages.length === 0) return undefined;
    const held = [...new Set(entries)];
    for (const key of held) key.draining = true;
    const waitsFor = entries.map(({ route }) => route);
    const routes = waitsFor.some((route) => route !== undefined) ? waitsFor : undefined;
    const crashes = alone ? page.crashes : 0;
    const own = { attempts, errors, routes, alone: alone && messages.length === 1, crashes, page: undefined };
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
      // What was parked meanwhile was not there to be read.
      if (key.parked !== before || key.unwritten > 0) continue;
      // Somebody has deleted what was parked.
      this.#keys.park(key, -before);
      freed.push(key);
    }
    this.#free(part, freed);
  }

  /** Keys with nothing parked are free once that is written. */
  #free(part: P, keys: readonly BlockedKey[]): void {
    if (keys.length > 0) this.#settler.writeKeys(part, keys).catch(() => undefined);
  }

  async #noPage(page: NoPage): Promise<"again" | undefined> {
    switch (page) {
      case "lost":
        this.#invalidate();
        return "again";
      case "slow":
        this.#enterSoon();
        if (this.#limit === 1) throw tooSlow(this.#options.relay);
        this.#askForLess();
        return "again";
      case "untidy":
        this.#chores.push(() => this.#port.tidy(this.#parts));
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
    const generation = this.#generation;
    const n = ++this.#claims.handedOut;
    return { kind, messages, ...own, part, generation, keys, entries, detached: new Set(), n, ended: false };
  }

  get #limits(): Limit {
    const { messages, bytes } = this.#options.batch;
    return { messages: Math.min(this.#caution.limit ?? messages, messages, this.#limit), bytes };
  }

  get #isIdle(): boolean {
    return this.#claims.empty && !this.#settler.busy;
  }

  get #isFull(): boolean {
    return this.#keys.parked >= this.#options.maxParked;
  }

  /** Not when something else has to be done between two pages. */
  #mayOpenNext(): boolean {
    const busy = this.#isBehind || this.#ending || this.#paused || this.#isFull;
    return !busy && this.#caution.suspicious.length === 0;
  }

  #partOf(lane: number): P | undefined {
    return this.#parts.find(({ lanes }) => lanes.includes(lane));
  }

  // ── Settling ──────────────────────────────────────────────────────────────────────────────────────────────────

  admit(claim: LaneClaim<P, S, M>): readonly boolean[] | "all" {
    // Its settle would be refused, so whatever it let out would go out again.
    if (!this.isCurrent(claim)) return claim.messages.map(() => false);
    if (claim.kind === "retry" || this.#keys.size === 0) return "all";
    return claim.messages.map((message) => !this.#keys.has(message));
  }

  settle(claim: LaneClaim<P, S, M>, outcomes: readonly Outcome[]): Promise<void> {
    if (this.#carried?.claims.has(claim) === true) return this.#carried.done.then(() => this.settle(claim, outcomes));
    claim.ended = true;
    if (claim.generation === this.#generation && !this.#claims.isNext(claim)) this.#invalidate();
    if (claim.generation !== this.#generation) return Promise.reject(leaseLost(this.#options.relay));
    // The rest of an incomplete claim is not handed out again by this session: it goes to the next owner.
    if (outcomes.length < claim.messages.length) this.#ending = true;
    this.#claims.end(claim);
    const written = this.#settler.settle(claim.part, claim, outcomes);
    // Behind what is left of an incomplete claim nothing may be settled.
    if (!this.#ending) for (const empty of this.#settleEmpty()) empty.catch(() => undefined);
    return written;
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
      ended: false,
    };
    if (key === undefined || !current) return own;
    claim.detached.add(message);
    this.#carried?.claims.add(own);
    // Otherwise it is carried over with the claim that it was part of.
    if (claim.generation === this.#generation) {
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
    if (this.isCurrent(claim)) this.#invalidate();
    throw leaseLost(this.#options.relay);
  }

  abandon(claim: LaneClaim<P, S, M>): void {
    claim.ended = true;
    if (this.isCurrent(claim)) this.#invalidate();
  }

  // ── Owning ────────────────────────────────────────────────────────────────────────────────────────────────────

  async tend(): Promise<SessionState> {
    if (!this.#left) await this.#look();
    return {
      lanes: this.#parts.reduce((sum, { lanes }) => sum + lanes.length, 0),
      paused: this.#paused,
      parked: this.#keys.parked,
      blockedKeys: this.#keys.size,
      full: this.#isFull,
    };
  }

  async #look(): Promise<void> {
    const generation = this.#generation;
    const sentAt = this.#clock.monotonic();
    const tended = this.#port.tend(this.#parts, this.#claims.messages);
    const { view, renewed, failure } = await tended.catch((error: unknown) => {
      if (FATAL.has(errorCode(error) ?? "")) this.#invalidate();
      throw error;
    });
    this.#paused = view.paused;
    // Asked about parts of before, an answer says nothing of those that are being loaded.
    if (generation === this.#generation && !this.#stale && !this.#loading) {
      if (renewed) this.#extend(sentAt);
      else this.#invalidate();
    }
    if (failure !== undefined) throw failure.error;
    this.#planChores(view);
    await this.#promoteDue(view.scheduledInMs);
  }

  #planChores(view: View): void {
    if (this.#chores.length > 0 || this.#ending) return;
    const { take, give } = planBalance(view);
    if (take.length > 0) this.#chores.push(() => this.#port.take(take));
    // A careful owner keeps its lanes: what kills must not be met by an owner that knows nothing of it.
    if (give.length > 0 && this.#caution.limit === undefined)
      this.#chores.push(() => this.#port.give(this.#parts, give));
    if (view.commands) this.#chores.push(() => this.#port.carryOut(this.#parts));
    if (view.outdated) this.#enterSoon();
  }

  async #promoteDue(inMs: number | null): Promise<void> {
    let next = inMs;
    if (inMs !== null && inMs <= 0 && !this.#stale) {
      const promote = () => this.#port.promote(this.#parts);
      if (this.#port.promotesAlone) {
        const promoting = this.#exclusively(async () => (this.#stale ? 0 : promote()));
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
    // What is reported from now on comes too late: others may have it before it is written.
    this.#void();
    await this.#exclusively(async () => {
      this.#left = true;
      await this.#port.give(this.#parts, "all");
      this.#invalidate();
    });
  }

  #extend(sentAt: number): void {
    this.#validUntil = Math.max(this.#validUntil, sentAt + this.#options.leaseMs * USABLE);
  }

  /** Every claim is void. */
  #void(): void {
    this.#generation++;
    this.#claims.clear();
    this.#settler.drop(leaseLost(this.#options.relay));
  }

  /** What is in memory no longer holds: the next claim loads everything anew. */
  #invalidate(): void {
    this.#stale = true;
    this.#validUntil = 0;
    this.#carried = undefined;
    this.#void();
  }

  /** Loads everything anew when what is in hand is settled. */
  #enterSoon(): void {
    if (this.#chores.length === 0) this.#chores.push(async () => undefined);
  }

  async #enter(ongoing: ReadonlySet<LaneClaim<P, S, M>> = new Set()): Promise<void> {
    await this.#settled();
    this.#void();
    const generation = this.#generation;
    const sentAt = this.#clock.monotonic();
    const messages = [...ongoing].flatMap((claim) => (claim.ended ? [] : claim.messages));
    this.#loading = true;
    try {
      const entered = await this.#port.enter([...new Set(messages)]);
      // Given up meanwhile: then this load is void as well.
      if (generation !== this.#generation) return;
      // What was asked while it was loaded was asked about the parts of before.
      this.#generation++;
      this.#load(entered, ongoing);
      this.#extend(sentAt);
    } finally {
      this.#loading = false;
    }
  }

  #load({ parts, keys, ongoing: stillParked }: Entered<P>, ongoing: ReadonlySet<LaneClaim<P, S, M>>): void {
    this.#parts = parts;
    this.#caution.load(parts);
    this.#keys.clear();
    const now = this.#clock.monotonic();
    const empty: BlockedKey[] = [];
    for (const stored of keys) {
      const key = this.#keys.load(stored, now);
      if (key.parked === 0 && !key.held) empty.push(key);
    }
    this.#stale = false;
    for (const claim of ongoing) {
      // What the store has kept for it is taken back by another load.
      if (!this.#carryOver(claim, stillParked)) this.#enterSoon();
    }
    for (const [part, those] of Map.groupBy(empty, ({ lane }) => this.#partOf(lane))) {
      if (part !== undefined) this.#free(part, those);
    }
  }

  /**
   * An attempt that goes on is settled as ever if its messages are still parked in lanes of this process: to make it again
   * would send what may be on its way already. Otherwise it is void: true when nothing of it is left here.
   */
  #carryOver(claim: LaneClaim<P, S, M>, stillParked: ReadonlySet<string>): boolean {
    const entries = claim.messages.flatMap((message) => {
      const key = stillParked.has(String(message.ref)) ? this.#keys.of(message) : undefined;
      return key === undefined ? [] : [key];
    });
    const [part, ...others] = new Set(entries.map(({ lane }) => this.#partOf(lane)));
    if (claim.ended || part === undefined || others.length > 0 || entries.length < claim.messages.length)
      return entries.length === 0;
    Object.assign(claim, { generation: this.#generation, part, entries, keys: [...new Set(entries)] });
    for (const key of claim.keys) key.draining = true;
    this.#claims.add(claim);
    return true;
  }

  async #doChores(): Promise<void> {
    if (this.#chores.length === 0) return;
    await this.#settled();
    const chores = this.#chores;
    const ongoing = new Set(this.#claims.retry);
    const { promise: done, resolve } = Promise.withResolvers<void>();
    this.#carried = { claims: ongoing, done };
    this.#chores = [];
    this.#choresSince = undefined;
    try {
      for (const chore of chores) {
        await this.#settled();
        await chore();
        // Lanes and blocked keys may have changed.
        await this.#enter(ongoing);
        // Given up meanwhile: what is left is planned again.
        if (this.#stale) return;
      }
    } catch (error) {
      this.#invalidate();
      throw error;
    } finally {
      this.#carried = undefined;
      resolve();
    }
  }

  /** Resolves with nothing being written. */
  async #settled(): Promise<void> {
    while (this.#settler.busy) await this.#settler.idle();
  }

  /** With no claim under way, of either kind. */
  #exclusively<T>(run: () => Promise<T>): Promise<T> {
    return this.#turns.new.run(() => this.#turns.retry.run(run));
  }
}
