import type { Clock, JoinOptions } from "../core/contracts.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import type { Caution } from "./caution.ts";
import type { ClaimsInHand, LaneClaim } from "./claims-in-hand.ts";
import type { Entered, LanePort, Part, Stored } from "./lane-port.ts";
import { leaseLost } from "./relay-errors.ts";
import type { Settler } from "./settler.ts";

/** The part of a lease in which messages may be published: the rest is for what was sent before its end. */
export const USABLE = 0.8;
/** Lanes change hands and commands are carried out after this time, though attempts that take long go on. */
const PATIENCE_MS = 1000;

type Chore = () => Promise<void>;

/** What the engine keeps in memory, and loads anew. */
export interface Memory<P extends Part, S extends Stored, M> {
  readonly keys: BlockedKeys;
  readonly caution: Caution<P>;
  readonly claims: ClaimsInHand<P, S, M>;
  readonly settler: Settler<P, S, M>;
}

/**
 * The lanes that a process holds. Its memory comes from one load. When the fence no longer holds or an answer is lost,
 * everything is loaded anew and all earlier claims are void. Work that changes lanes or keys is a chore: it is done
 * between claims and followed by a load. The caller of a load or a chore keeps claims from being made meanwhile.
 */
export class LaneHold<P extends Part, S extends Stored, M> {
  readonly #port: LanePort<P, S, M>;
  readonly #options: Pick<JoinOptions, "relay" | "leaseMs">;
  readonly #clock: Clock;
  readonly #memory: Memory<P, S, M>;
  #parts: readonly P[] = [];
  #generation = 0;
  #stale = true;
  #validUntil = 0;
  #chores: Chore[] = [];
  /** Since when chores wait for claims in hand. */
  #choresSince: number | undefined;
  #loading = false;
  /** Attempts that go on while chores are done; their outcomes wait until the chores have ended. */
  #carried: { readonly claims: Set<LaneClaim<P, S, M>>; readonly done: Promise<void> } | undefined;

  constructor(port: LanePort<P, S, M>, options: JoinOptions, clock: Clock, memory: Memory<P, S, M>) {
    this.#port = port;
    this.#options = options;
    this.#clock = clock;
    this.#memory = memory;
  }

  get parts(): readonly P[] {
    return this.#parts;
  }

  /** Rises with every load: claims of an older one are void. */
  get generation(): number {
    return this.#generation;
  }

  /** The memory is no longer valid. */
  get isStale(): boolean {
    return this.#stale;
  }

  /** Everything is being loaded. */
  get isLoading(): boolean {
    return this.#loading;
  }

  get hasChores(): boolean {
    return this.#chores.length > 0;
  }

  /** Something has to be loaded or done before the next claim. */
  get isBehind(): boolean {
    return this.#stale || this.hasChores;
  }

  /** Monotonic time up to which messages may be published. */
  get validUntil(): number {
    return this.#validUntil;
  }

  /** The lease was renewed by a request that was sent at that time. */
  extend(sentAt: number): void {
    this.#validUntil = Math.max(this.#validUntil, sentAt + this.#options.leaseMs * USABLE);
  }

  partOf(lane: number): P | undefined {
    return this.#parts.find(({ lanes }) => lanes.includes(lane));
  }

  // ── Claims of one load ────────────────────────────────────────────────────────────────────────────────────────

  isCurrent(claim: LaneClaim<P, S, M>): boolean {
    return claim.generation === this.#generation || this.#carried?.claims.has(claim) === true;
  }

  /** Resolves when the chores have ended, for an attempt that goes on meanwhile. */
  carriedOver(claim: LaneClaim<P, S, M>): Promise<void> | undefined {
    return this.#carried?.claims.has(claim) === true ? this.#carried.done : undefined;
  }

  /** It is part of a claim in hand: if chores are under way, it goes on during them too. */
  carry(claim: LaneClaim<P, S, M>): void {
    this.#carried?.claims.add(claim);
  }

  /** Every claim is void. */
  void(): void {
    this.#generation++;
    this.#memory.claims.clear();
    this.#memory.settler.drop(leaseLost(this.#options.relay));
  }

  /** The memory is no longer valid: the next claim loads everything anew. */
  invalidate(): void {
    this.#stale = true;
    this.#validUntil = 0;
    this.#carried = undefined;
    this.void();
  }

  // ── Loads and chores ──────────────────────────────────────────────────────────────────────────────────────────

  plan(chore: Chore): void {
    this.#chores.push(chore);
  }

  /** Loads everything anew when what is in hand is settled. */
  enterSoon(): void {
    if (!this.hasChores) this.plan(async () => undefined);
  }

  /** Loads what is stale and does what has to be done between claims; false while claims in hand keep it from that. */
  async catchUp(): Promise<boolean> {
    if (this.#stale) await this.enter();
    if (!this.hasChores) return true;
    const now = this.#clock.monotonic();
    this.#choresSince ??= now;
    if (this.#memory.claims.hasNew) return false;
    if (this.#memory.claims.hasRetry && now - this.#choresSince <= PATIENCE_MS) return false;
    await this.doChores();
    return true;
  }

  async enter(ongoing: ReadonlySet<LaneClaim<P, S, M>> = new Set()): Promise<void> {
    await this.#settled();
    this.void();
    const generation = this.#generation;
    const sentAt = this.#clock.monotonic();
    const messages = [...ongoing].flatMap((claim) => (claim.ended ? [] : claim.messages));
    this.#loading = true;
    try {
      const entered = await this.#port.enter([...new Set(messages)]);
      // Given up meanwhile: then this load is void as well.
      if (generation !== this.#generation) return;
      // Questions that were asked during the load are about the earlier parts.
      this.#generation++;
      this.#load(entered, ongoing);
      this.extend(sentAt);
    } finally {
      this.#loading = false;
    }
  }

  #load({ parts, keys, ongoing: stillParked }: Entered<P>, ongoing: ReadonlySet<LaneClaim<P, S, M>>): void {
    this.#parts = parts;
    this.#memory.keys.clear();
    const now = this.#clock.monotonic();
    const loaded: BlockedKey[] = [];
    const empty: BlockedKey[] = [];
    for (const stored of keys) {
      const key = this.#memory.keys.load(stored, now);
      loaded.push(key);
      if (key.parked === 0 && !key.held) empty.push(key);
    }
    this.#memory.caution.load(parts, loaded, now);
    this.#stale = false;
    for (const claim of ongoing) {
      // Another load takes back what the store has kept for it.
      if (!this.#carryOver(claim, stillParked)) this.enterSoon();
    }
    for (const [part, those] of Map.groupBy(empty, ({ lane }) => this.partOf(lane))) {
      if (part !== undefined) this.#memory.settler.free(part, those);
    }
  }

  /**
   * An attempt that goes on is settled as usual if its messages are still parked in lanes of this process: a new
   * attempt could send them twice. Otherwise it is void: true when none of its messages is left here.
   */
  #carryOver(claim: LaneClaim<P, S, M>, stillParked: ReadonlySet<string>): boolean {
    const entries = claim.messages.flatMap((message) => {
      const key = stillParked.has(String(message.ref)) ? this.#memory.keys.of(message) : undefined;
      return key === undefined ? [] : [key];
    });
    const [part, ...others] = new Set(entries.map(({ lane }) => this.partOf(lane)));
    if (claim.ended || part === undefined || others.length > 0 || entries.length < claim.messages.length)
      return entries.length === 0;
    Object.assign(claim, { generation: this.#generation, part, entries, keys: [...new Set(entries)], beside: true });
    for (const key of claim.keys) key.draining = true;
    this.#memory.claims.add(claim);
    return true;
  }

  async doChores(): Promise<void> {
    if (!this.hasChores) return;
    await this.#settled();
    const chores = this.#chores;
    const ongoing = new Set(this.#memory.claims.retry);
    const { promise: done, resolve } = Promise.withResolvers<void>();
    this.#carried = { claims: ongoing, done };
    this.#chores = [];
    this.#choresSince = undefined;
    try {
      for (const chore of chores) {
        await this.#settled();
        await chore();
        // Lanes and blocked keys may have changed.
        await this.enter(ongoing);
        // Given up meanwhile: what is left is planned again.
        if (this.#stale) return;
      }
    } catch (error) {
      this.invalidate();
      throw error;
    } finally {
      this.#carried = undefined;
      resolve();
    }
  }

  /** Resolves with nothing being written. */
  async #settled(): Promise<void> {
    while (this.#memory.settler.busy) await this.#memory.settler.idle();
  }
}
