import type { ClaimKind, Clock, JoinOptions, Outcome, QueueSession, SessionState } from "../../core/contracts.ts";
import { uuidv7 } from "../../core/uuid.ts";
import { planBalance } from "./balance.ts";
import { BlockedKeys } from "./blocked-keys.ts";
import { carefulLimit, TRUSTED_AFTER } from "../shared/careful-limit.ts";
import { leaseLost } from "../shared/relay-errors.ts";
import { ClaimSource, type MessageSource } from "./claim-source.ts";
import { type MongoClaim, whileAlone } from "./claims.ts";
import { carryOutCommands, hasCommands } from "./commands.ts";
import { findOrCreateRelay } from "./join-relay.ts";
import { Lease } from "./lease.ts";
import { isTimeExpired } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import type { RelayView } from "./mongodb-ownership.ts";
import { MongoOwnership, relayDropped } from "./mongodb-ownership.ts";
import { nextScheduledMs, promote } from "./schedule.ts";
import type { SettleBatch } from "./settle-batch.ts";
import { Settler } from "./settler.ts";
import { StreamSource, type StreamSettings } from "./stream-source.ts";
import { takeOver } from "./take-over.ts";
import { takeBackOf } from "./take-back.ts";
import { Upkeep } from "./upkeep.ts";

type Chore = () => Promise<unknown>;

/** Lanes change hands and commands are carried out after this time, though attempts that take long go on. */
const PATIENCE_MS = 1000;

export interface SessionOptions {
  tables: Tables;
  join: JoinOptions;
  clock: Clock;
  /** How long an answer of the database is waited for. */
  deadlineMs: number;
  /** New messages come by a change stream. */
  stream: StreamSettings | undefined;
}

/** A process's hold on its lanes. What it sends carries a fence, so that nothing of it takes effect after its lease. */
export class MongoSession implements QueueSession {
  readonly #tables: Tables;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  readonly #ownership: MongoOwnership;
  readonly #lease: Lease;
  readonly #keys: BlockedKeys;
  readonly #settler: Settler;
  readonly #source: MessageSource;
  readonly #upkeep: Upkeep;
  /** The name under which lanes are held; another one after every reload, so that earlier claims are known as such. */
  #me: string | undefined;
  #lanes: number[] = [];
  #streams: string[] | null = null;
  /** Rises with every reload: claims of an older generation are void. */
  #generation = 0;
  /** Claims of new messages handed out and not settled yet, in order. */
  #newClaims: MongoClaim[] = [];
  /** Those of failed keys, each with keys of its own. */
  readonly #retryClaims = new Set<MongoClaim>();
  /** Settles of new messages that are not written yet. */
  #unwrittenNew = 0;
  #stale = true;
  #left = false;
  /** How many messages a claim takes at most: less than a batch while the server is slow. */
  #claimLimit: number;
  #paused = false;
  #crashes = 0;
  #tried = 0;
  #chores: Chore[] = [];
  /** Since when chores wait for claims in hand. */
  #choresSince: number | undefined;
  #scheduledDueAt: number | undefined;
  /** Published, and not yet in the relay's count. */
  #uncounted = 0;
  #turn: Promise<unknown> = Promise.resolve();

  constructor({ tables, join: options, clock, deadlineMs, stream }: SessionOptions) {
    this.#tables = tables;
    this.#options = options;
    this.#clock = clock;
    this.#claimLimit = options.batch.messages;
    this.#ownership = new MongoOwnership(tables.relays, options.relay, options.leaseMs);
    this.#lease = new Lease(clock, options.leaseMs);
    this.#upkeep = new Upkeep(tables, options, clock);
    this.#keys = new BlockedKeys(new Set(options.unordered));
    this.#settler = new Settler({
      tables,
      relay: options.relay,
      clock,
      keys: this.#keys,
      lease: this.#lease,
      owner: () => this.#me!,
      beforeWrite: () => this.#requireLease(),
      onWritten: (batch) => this.#noteWritten(batch),
      onSettled: () => this.#noteSettled(),
      onFailure: () => this.#invalidate(),
    });
    const lease = this.#lease;
    const claims = new ClaimSource(tables, options, clock, this.#keys, lease);
    this.#source =
      stream === undefined
        ? claims
        : new StreamSource({ tables, join: options, clock, lease, claims, stream, deadlineMs });
  }

  get validUntil(): number {
    return this.#lease.validUntil;
  }

  isCurrent(claim: MongoClaim): boolean {
    return claim.generation === this.#generation;
  }

  async join(): Promise<void> {
    await findOrCreateRelay(this.#tables, this.#ownership, this.#options, this.#clock);
    try {
      await this.#reload();
      // First for the lanes, then for what waits in them: commands, and messages that have come due.
      for (let look = 1; look <= 2; look++) {
        await this.tend();
        await this.#exclusively(() => this.#runChores());
      }
    } catch (error) {
      // Whoever was refused must not count as a process to share lanes with.
      if (this.#me !== undefined) await this.#ownership.give(this.#me, undefined).catch(() => undefined);
      throw error;
    }
  }

  claim(kind: ClaimKind): Promise<MongoClaim | undefined> {
    return this.#exclusively(async () => {
      try {
        return await this.#claim(kind);
      } catch (error) {
        // Documents may have been claimed though the answer was lost, and may yet be, unless the server itself gave up.
        if (!isTimeExpired(error)) this.#lease.noteUnknown();
        this.#invalidate();
        if (!isTimeExpired(error)) throw error;
        // The server is too slow for so many within the lease.
        this.#claimLimit = Math.max(1, Math.floor(this.#claimLimit / 4));
        return undefined;
      }
    });
  }

  async #claim(kind: ClaimKind): Promise<MongoClaim | undefined> {
    if (this.#left) return undefined;
    if (this.#stale) await this.#reload();
    if (this.#chores.length > 0) {
      // Lanes change hands and commands are carried out between batches, never under one.
      if (!this.#mayDoChores()) return undefined;
      await this.#runChores();
    }
    if (this.#paused || this.#lanes.length === 0) return undefined;
    if (this.#lease.short) await this.#renew();
    if (this.#stale) return undefined;
    const careful = carefulLimit(this.#crashes, this.#tried);
    if (careful !== undefined && !this.#idle) return undefined;
    const { batch } = this.#options;
    const limit = { messages: Math.min(careful ?? batch.messages, this.#claimLimit), bytes: batch.bytes };
    const generation = this.#generation;
    const scope = { owner: this.#me!, lanes: this.#lanes, streams: this.#streams, careful, limit, generation };
    const claim =
      kind === "new"
        ? await this.#source.ready({ ...scope, idle: this.#noNewInHand })
        : await this.#source.parked({ ...scope, idle: false });
    if (generation !== this.#generation) return undefined;
    if (claim === "refused") {
      this.#invalidate();
      return undefined;
    }
    if (claim === undefined) {
      // Nothing is left that could kill its owner.
      const nothingLeft = kind === "new" && this.#keys.parked === 0 && this.#idle;
      if (this.#crashes > 0 && nothingLeft) await this.#renew(true);
      return undefined;
    }
    this.#claimLimit = Math.min(batch.messages, this.#claimLimit * 2);
    if (kind === "new") this.#newClaims.push(claim);
    else this.#retryClaims.add(claim);
    return claim;
  }

  /** Nothing is in hand, or only attempts that take long: those are given up and made again. */
  #mayDoChores(): boolean {
    const now = this.#clock.monotonic();
    this.#choresSince ??= now;
    if (this.#newClaims.length > 0) return false;
    return this.#retryClaims.size === 0 || now - this.#choresSince > PATIENCE_MS;
  }

  admit(claim: MongoClaim): readonly boolean[] | "all" {
    // Its settle would be refused, so whatever it let out would go out again.
    if (claim.generation !== this.#generation) return claim.messages.map(() => false);
    if (claim.kind === "retry" || this.#keys.size === 0) return "all";
    return claim.messages.map((message) => !this.#keys.has(message));
  }

  settle(claim: MongoClaim, outcomes: readonly Outcome[]): Promise<void> {
    const current = claim.generation === this.#generation;
    if (current && claim.kind === "new" && this.#newClaims[0] !== claim) this.#invalidate();
    if (claim.generation !== this.#generation) return Promise.reject(leaseLost(this.#options.relay));
    // The rest of an incomplete claim is not handed out again by this session: it goes to whoever comes after.
    if (outcomes.length < claim.messages.length) this.#left = true;
    if (claim.kind === "retry") {
      this.#retryClaims.delete(claim);
      return this.#settler.add(claim, outcomes);
    }
    this.#newClaims.shift();
    this.#unwrittenNew++;
    return this.#settler.add(claim, outcomes).finally(() => this.#unwrittenNew--);
  }

  detach(claim: MongoClaim, index: number): MongoClaim {
    const message = claim.messages[index]!;
    const current = claim.generation === this.#generation;
    // Of a claim that is void, nothing counts any more.
    const key = claim.entries[index] ?? (current ? this.#keys.ensure(message) : undefined);
    const keys = key === undefined ? [] : [key];
    const own: MongoClaim = {
      ...claim,
      kind: "retry",
      messages: [message],
      attempts: [claim.attempts?.[index] ?? 0],
      routes: claim.routes && [claim.routes[index]],
      keys,
      entries: keys,
      streamed: undefined,
      detached: new Map(),
    };
    if (key === undefined || !current) return own;
    key.draining = true;
    claim.detached.set(index, own);
    this.#retryClaims.add(own);
    return own;
  }

  async putDown(claim: MongoClaim): Promise<void> {
    await this.#mark(claim, { $set: { alone: false, crashes: 0 } });
  }

  async pickUp(claim: MongoClaim): Promise<void> {
    await this.#mark(claim, { $set: { alone: true } });
  }

  async #mark(claim: MongoClaim, change: Record<string, unknown>): Promise<void> {
    if (!claim.alone) return;
    if (claim.generation === this.#generation && (await whileAlone(this.#tables.outbox, claim, change))) return;
    this.#invalidate();
    throw leaseLost(this.#options.relay);
  }

  abandon(claim: MongoClaim): void {
    if (claim.generation === this.#generation) this.#invalidate();
  }

  async tend(): Promise<SessionState> {
    const me = this.#me;
    if (!this.#left && me !== undefined) {
      const sentAt = this.#clock.monotonic();
      const view = await this.#ownership.tend(me, this.#source.note(this.#noNewInHand));
      if (view === undefined) {
        this.#invalidate();
        throw relayDropped(this.#options.relay);
      }
      if (me === this.#me) await this.#look(view, me, sentAt);
    }
    return {
      lanes: this.#lanes.length,
      paused: this.#paused,
      parked: this.#keys.parked,
      blockedKeys: this.#keys.size,
      full: this.#keys.parked >= this.#options.maxParked,
    };
  }

  nextRetryAt(): number | undefined {
    return this.#paused ? undefined : this.#keys.nextDueAt();
  }

  nextScheduledAt(): number | undefined {
    return this.#scheduledDueAt;
  }

  async leave(): Promise<void> {
    this.#left = true;
    await this.#settler.idle();
    // What is reported from now on comes too late: others may have it before it is written.
    this.#generation++;
    this.#forgetClaims();
    await this.#exclusively(async () => {
      const me = this.#me;
      if (me === undefined) return;
      await this.#lease.quiet();
      if (this.#uncounted > 0) await this.#renew();
      const { relay, unordered } = this.#options;
      const note = this.#source.note(this.#noNewInHand);
      this.#source.close();
      const mine = { relay, lanes: this.#lanes, owners: [me], unordered, died: false };
      // What is ready again is not what the stream would bring next.
      const released = await takeBackOf(this.#tables.outbox, mine);
      await this.#ownership.give(me, undefined, released > 0 ? undefined : note);
      this.#invalidate();
    });
  }

  // ── Owning ────────────────────────────────────────────────────────────────────────────────────────────────────

  async #look(view: RelayView, me: string, sentAt: number): Promise<void> {
    const { relay } = this.#options;
    this.#paused = view.paused;
    this.#streams = view.streams;
    if (!this.#noteView(view, me, sentAt)) return;
    if (this.#chores.length === 0) {
      const plan = planBalance(view, me);
      if (plan.take.length > 0) this.#chores.push(() => this.#ownership.take(me, plan.take));
      if (plan.give.length > 0)
        this.#chores.push(() => this.#ownership.give(me, plan.give, this.#source.note(this.#noNewInHand)));
      if (await hasCommands(this.#tables, { relay, lanes: this.#lanes })) {
        this.#chores.push(() => carryOutCommands(this.#tables, { relay, lanes: this.#lanes }, this.#lease.fence()));
      }
      if (await this.#upkeep.hasForgotten(this.#lanes, view)) this.#chores.push(() => Promise.resolve());
    }
    await this.#upkeep.renewDocuments([...this.#newClaims, ...this.#retryClaims], me, this.#lease.until);
    await this.#promoteDue();
  }

  /** False when the lanes went to others: then all that is in memory is void. */
  #noteView(view: RelayView, me: string, sentAt: number): boolean {
    const known = this.#lease.note(view, me, sentAt);
    this.#source.saw(view);
    const mine = new Set(view.lanes.flatMap(({ owner, lane }) => (owner === me ? [lane] : [])));
    const alive = known && this.#lanes.every((lane) => mine.has(lane));
    if (!alive) this.#invalidate();
    // Lanes that are its own without its knowing: a reload takes note of them.
    else if (mine.size > this.#lanes.length && this.#chores.length === 0) this.#chores.push(() => Promise.resolve());
    // What was given up is no longer in hand, whatever time the lease has.
    if (this.#stale) this.#lease.end();
    return alive;
  }

  /** True while the lanes are its own. */
  async #renew(clearCrashes = false): Promise<boolean> {
    const me = this.#me!;
    const published = this.#uncounted;
    this.#uncounted = 0;
    const sentAt = this.#clock.monotonic();
    const renewing = this.#ownership.settled(me, published, clearCrashes, this.#source.note(this.#noNewInHand));
    const view = await renewing.catch((error: unknown) => {
      this.#uncounted += published;
      throw error;
    });
    if (me !== this.#me) return false;
    if (clearCrashes) this.#crashes = this.#tried = 0;
    if (view !== undefined) return this.#noteView(view, me, sentAt);
    this.#invalidate();
    return false;
  }

  async #requireLease(): Promise<void> {
    if (this.#lease.short && !(await this.#renew())) throw leaseLost(this.#options.relay);
  }

  #noteWritten({ published, ids, streamEnds }: SettleBatch): void {
    for (const end of streamEnds) this.#source.settled(end);
    this.#tried += ids.length;
    this.#uncounted += published;
  }

  async #noteSettled(): Promise<void> {
    const healthy = carefulLimit(this.#crashes, this.#tried) === undefined || this.#tried >= TRUSTED_AFTER;
    await this.#renew(this.#crashes > 0 && healthy);
  }

  get #idle(): boolean {
    return this.#newClaims.length === 0 && this.#retryClaims.size === 0 && !this.#settler.busy;
  }

  /** All new messages that were handed out are settled. */
  get #noNewInHand(): boolean {
    return this.#newClaims.length === 0 && this.#unwrittenNew === 0;
  }

  #forgetClaims(): void {
    this.#newClaims = [];
    this.#retryClaims.clear();
  }

  async #promoteDue(): Promise<void> {
    const scope = { lanes: this.#lanes, streams: this.#streams };
    let ms = await nextScheduledMs(this.#tables, scope);
    if (ms !== undefined && ms <= 0 && !this.#stale) {
      const promoting = this.#exclusively(() => this.#promote());
      promoting.catch(() => undefined);
      // A claim that takes long must not keep the lease from being renewed.
      const done = await Promise.race([promoting, this.#clock.sleep(this.#options.leaseMs / 6)]);
      ms = done === true ? await nextScheduledMs(this.#tables, scope) : this.#options.leaseMs / 6;
    }
    this.#scheduledDueAt = ms === undefined ? undefined : this.#clock.monotonic() + Math.max(ms, 0);
  }

  async #promote(): Promise<true> {
    // What is promoted comes by no change stream: whoever goes on from a stored time would let later ones overtake it.
    if (this.#source.rescan()) await this.#renew();
    if (this.#stale) return true;
    const scope = { lanes: this.#lanes, streams: this.#streams };
    await promote(this.#tables, { ...scope, fence: () => this.#lease.fence() }).catch((error: unknown) => {
      if (!isTimeExpired(error)) throw error;
    });
    return true;
  }

  /** What is in memory no longer holds: claims are void and the next claim loads everything anew. */
  #invalidate(): void {
    this.#stale = true;
    this.#generation++;
    this.#lease.end();
    this.#forgetClaims();
    this.#settler.drop(leaseLost(this.#options.relay));
  }

  async #reload(): Promise<void> {
    await this.#settler.idle();
    await this.#lease.quiet();
    // Until it is known what is ready otherwise, there is nothing to go on from.
    this.#source.rescan();
    const { relay, owner, unordered } = this.#options;
    const generation = ++this.#generation;
    this.#forgetClaims();
    // Attempts that are still under way count for nothing: their messages are claimed again.
    this.#settler.drop(leaseLost(relay));
    const me = `${owner}#${uuidv7()}`;
    const sentAt = this.#clock.monotonic();
    const view = await this.#ownership.join(me, this.#me);
    if (view === undefined) {
      this.#lanes = [];
      throw relayDropped(relay);
    }
    this.#me = me;
    const mine = view.lanes.filter((lane) => lane.owner === me);
    this.#lanes = mine.map(({ lane }) => lane);
    this.#streams = view.streams;
    this.#paused = view.paused;
    this.#crashes = Math.max(0, ...mine.map(({ crashes }) => crashes));
    this.#lease.note(view, me, sentAt);
    const monotonicOf = (time: Date) => this.#clock.monotonic() + (time.getTime() - this.#lease.serverNow());
    const owning = { tables: this.#tables, ownership: this.#ownership, keys: this.#keys };
    this.#source.restart(view, await takeOver({ ...owning, relay, unordered, monotonicOf }, view, me));
    if (generation === this.#generation) this.#stale = false;
  }

  async #runChores(): Promise<void> {
    await this.#settler.idle();
    // What is still being tried counts for nothing: its messages are claimed again.
    if (this.#retryClaims.size > 0) this.#generation++;
    this.#forgetClaims();
    const chores = this.#chores;
    this.#chores = [];
    this.#choresSince = undefined;
    for (const chore of chores) {
      // What the server had no time for is done another time.
      await chore().catch((error: unknown) => {
        if (!isTimeExpired(error)) throw error;
      });
      // Lanes and blocked keys may have changed under the chore.
      await this.#reload();
    }
  }

  /** Claims, promotions and changes of lanes go one after another. */
  #exclusively<T>(run: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(run, run);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}
