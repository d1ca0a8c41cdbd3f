import type { Claim, Clock, JoinOptions, Outcome, QueueSession, SessionState } from "../../core/contracts.ts";
import { carefulLimit } from "../shared/careful-limit.ts";
import { leaseLost, requireSameStreams } from "../shared/relay-errors.ts";
import { BlockedKeys } from "./blocked-keys.ts";
import type { BlockedKey } from "./blocked-keys.ts";
import { planBalance } from "./balance.ts";
import { carryOutCommands } from "./commands.ts";
import type { LogMessage } from "./log-message.ts";
import { PageReader } from "./page-reader.ts";
import { loadBlockedSql, parkedKeyOf } from "./parking-sql.ts";
import type { CopyRunner, SqlRunner } from "./postgres-client.ts";
import { plainArray } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";
import { PostgresOwnership, requireSound } from "./postgres-ownership.ts";
import { promoteDue } from "./schedule.ts";
import { Settler } from "./settler.ts";
import { WindowOpener } from "./window-opener.ts";

/** A new cursor row after this many writes. */
const RENUMBER_AFTER = 10_000;
/** How many due keys one claim may hold. */
const KEYS_PER_CLAIM = 256;
const UNREADABLE_RETRY_MS = 1000;

interface LogClaim extends Claim {
  readonly messages: readonly LogMessage[];
  readonly cursor: Cursor;
  readonly generation: number;
  /** The position the cursor reaches with it; undefined for parked messages. */
  readonly upto: string | undefined;
  readonly last: boolean;
  /** The failed keys it holds, and which of them each message belongs to. */
  readonly keys: readonly BlockedKey[];
  readonly entries: readonly BlockedKey[];
}

type Chore = () => Promise<void>;

export class PostgresSession implements QueueSession {
  readonly #sql: SqlRunner;
  readonly #names: Names;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  readonly #ownership: PostgresOwnership;
  readonly #reader: PageReader;
  readonly #windows: WindowOpener;
  readonly #settler: Settler;
  readonly #keys: BlockedKeys;
  readonly #lease: string;
  #cursors: Cursor[] = [];
  #validUntil = 0;
  /** Rises with every reload: claims of an older generation are void. */
  #generation = 0;
  /** Claims handed out and not settled yet, in order. */
  #claims: LogClaim[] = [];
  #stale = true;
  #left = false;
  #paused = false;
  #chores: Chore[] = [];
  #scheduledDueAt: number | undefined;

  constructor(sql: CopyRunner, names: Names, options: JoinOptions, clock: Clock) {
    this.#sql = sql;
    this.#names = names;
    this.#options = options;
    this.#clock = clock;
    this.#reader = new PageReader(sql, names, options.batch);
    this.#keys = new BlockedKeys(new Set(options.unordered));
    this.#lease = `${options.leaseMs} ms`;
    this.#windows = new WindowOpener(sql, names, this.#lease);
    this.#settler = new Settler({
      sql,
      names,
      relay: options.relay,
      lease: this.#lease,
      clock,
      keys: this.#keys,
      validUntil: () => this.#validUntil,
      onFailure: () => this.#invalidate(),
      mayReopen: (cursor) => this.#mayReopen(cursor),
      onReopened: (opened) => this.#windows.noteOpened(opened),
    });
    this.#ownership = new PostgresOwnership(sql, names, options.relay, options.owner, options.leaseMs);
  }

  get validUntil(): number {
    return this.#validUntil;
  }

  async join(): Promise<void> {
    const view = await this.#ownership.look();
    if (view.exists) requireSameStreams(this.#options, view.streams);
    else if (!view.standby) await this.#ownership.createRelay(this.#options.start, this.#options.streams);
    try {
      await this.tend();
      await this.#runChores();
    } catch (error) {
      // Whoever was refused must not count as a process to share lanes with.
      await this.#ownership.release(this.#cursors).catch(() => undefined);
      throw error;
    }
  }

  async claim(): Promise<LogClaim | undefined> {
    try {
      return await this.#claim();
    } catch (error) {
      // A window may have been opened though its answer was lost: what is in memory may be behind.
      this.#invalidate();
      throw error;
    }
  }

  async #claim(): Promise<LogClaim | undefined> {
    if (this.#left) return undefined;
    if (this.#stale) await this.#reload();
    if (this.#chores.length > 0) {
      // Lanes change hands and commands are carried out between batches, never under one.
      if (this.#claims.length > 0) return undefined;
      await this.#runChores();
    }
    if (this.#paused || this.#cursors.length === 0) return undefined;
    return (await this.#claimParked()) ?? (await this.#claimNew());
  }

  admit(claim: LogClaim): readonly boolean[] | "all" {
    // Its settle would be refused, so whatever it let out would go out again.
    if (claim.generation !== this.#generation) return claim.messages.map(() => false);
    if (claim.keys.length > 0 || this.#keys.size === 0) return "all";
    return claim.messages.map((message) => !this.#keys.has(message));
  }

  settle(claim: LogClaim, outcomes: readonly Outcome[]): Promise<void> {
    // Out of turn would step over a claim that was never settled.
    if (claim.generation === this.#generation && this.#claims[0] !== claim) this.#invalidate();
    if (claim.generation !== this.#generation) return Promise.reject(leaseLost(this.#options.relay));
    this.#claims.shift();
    // The rest of an incomplete claim is not handed out again by this session: it goes to whoever comes after.
    if (outcomes.length < claim.messages.length) this.#left = true;
    return this.#settler.add(claim, outcomes);
  }

  async putDown(claim: LogClaim): Promise<void> {
    await this.#whileAlone(claim, () => this.#ownership.clearSuspect(claim.cursor));
  }

  async pickUp(claim: LogClaim): Promise<void> {
    await this.#whileAlone(claim, () => this.#markSuspect(claim.cursor, claim.messages[0]!.positionText));
  }

  async #whileAlone(claim: LogClaim, write: () => Promise<boolean>): Promise<void> {
    if (!claim.alone) return;
    await this.#settler.idle();
    if (claim.generation === this.#generation && (await write())) return;
    this.#invalidate();
    throw leaseLost(this.#options.relay);
  }

  abandon(): void {
    this.#invalidate();
  }

  async tend(): Promise<SessionState> {
    // Looked at first: a standby cannot be written to, and writing to a restored copy would cover up what it is.
    const view = await this.#ownership.look();
    requireSound(view, this.#options.relay);
    const sentAt = this.#clock.monotonic();
    const cursors = this.#cursors;
    const renewed = await this.#ownership.renew(cursors);
    if (cursors === this.#cursors) {
      if (renewed.size === cursors.length) this.#extend(sentAt);
      else this.#invalidate();
    }
    this.#paused = view.paused;
    this.#reader.streams = view.streams;
    this.#planChores(view);
    if (view.scheduledInMs !== null && view.scheduledInMs <= 0)
      view.scheduledInMs = await promoteDue(this.#sql, this.#names);
    this.#scheduledDueAt = view.scheduledInMs === null ? undefined : this.#clock.monotonic() + view.scheduledInMs;
    return {
      lanes: this.#cursors.reduce((sum, cursor) => sum + cursor.lanes.length, 0),
      paused: this.#paused,
      parked: this.#keys.parked,
      blockedKeys: this.#keys.size,
      full: this.#keys.parked >= this.#options.maxParked,
    };
  }

  nextDueAt(): number | undefined {
    const keys = this.#paused ? undefined : this.#keys.nextDueAt();
    const scheduled = this.#scheduledDueAt;
    return keys === undefined || scheduled === undefined ? (keys ?? scheduled) : Math.min(keys, scheduled);
  }

  async leave(): Promise<void> {
    this.#left = true;
    await this.#settler.idle();
    await this.#ownership.release(this.#cursors);
    this.#invalidate();
  }

  // ── Claiming ──────────────────────────────────────────────────────────────────────────────────────────────────

  async #claimNew(): Promise<LogClaim | undefined> {
    if (this.#keys.parked >= this.#options.maxParked) return undefined;
    for (const cursor of this.#cursors) {
      if (cursor.cur !== undefined && !cursor.exhausted) return this.#page(cursor);
    }
    if (this.#cursors.some((cursor) => cursor.cur !== undefined)) return undefined;
    if (this.#claims.length > 0 || this.#settler.busy) return undefined;
    await this.#tidy();
    return (await this.#open()) ? this.#claimNew() : undefined;
  }

  /** Not when something else has to be done between two windows. */
  #mayReopen(cursor: Cursor): boolean {
    return (
      this.#cursors.length === 1 &&
      this.#cursors[0] === cursor &&
      this.#chores.length === 0 &&
      !this.#left &&
      !this.#stale &&
      !this.#paused &&
      cursor.writes < RENUMBER_AFTER &&
      this.#keys.parked < this.#options.maxParked
    );
  }

  async #open(): Promise<boolean> {
    const cursors = this.#cursors;
    const sentAt = this.#clock.monotonic();
    const opened = await this.#windows.open(cursors, () => cursors === this.#cursors);
    if (opened === "not ours") this.#invalidate();
    if (opened === "opened") this.#extend(sentAt);
    return opened === "opened";
  }

  async #page(cursor: Cursor): Promise<LogClaim | undefined> {
    const careful = carefulLimit(cursor.crashes, cursor.tried);
    if (careful !== undefined && this.#claims.length > 0) return undefined;
    const generation = this.#generation;
    const { messages, last } = await this.#reader.page(cursor, this.#limit(careful));
    if (generation !== this.#generation) return undefined;
    const upto = messages.at(-1)?.positionText ?? cursor.fetched;
    const alone = careful === 1 && messages.length === 1;
    if (alone && !(await this.#markSuspect(cursor, messages[0]!.positionText))) return undefined;
    if (generation !== this.#generation) return undefined;
    cursor.fetched = upto;
    cursor.exhausted = last;
    const crashes = alone ? cursor.suspectCrashes : 0;
    return this.#hold({
      messages,
      attempts: undefined,
      alone,
      crashes,
      cursor,
      generation,
      upto,
      last,
      keys: [],
      entries: [],
    });
  }

  async #claimParked(): Promise<LogClaim | undefined> {
    const due = this.#keys.due(this.#clock.monotonic(), KEYS_PER_CLAIM);
    if (due.length === 0) return undefined;
    // One claim belongs to one cursor, so that one settle can fence it.
    const cursor = this.#cursorOf(due[0]!.lane)!;
    const careful = carefulLimit(cursor.crashes, cursor.tried);
    if (careful !== undefined && this.#claims.length > 0) return undefined;
    const keys = due
      .filter((key) => this.#cursorOf(key.lane) === cursor)
      .slice(0, careful === undefined ? KEYS_PER_CLAIM : 1);
    const generation = this.#generation;
    const { relay } = this.#options;
    const { messages, entries, errors, full } = await this.#reader.parked(relay, keys, this.#limit(careful));
    if (generation !== this.#generation) return undefined;
    const found = new Set(entries);
    for (const key of keys) {
      // Messages that are parked and cannot be read are looked for again: their segment may be changing hands.
      if (!found.has(key) && (!full || messages.length === 0) && key.parked > 0)
        key.dueAt = this.#clock.monotonic() + UNREADABLE_RETRY_MS;
    }
    // A key with nothing parked is freed by the settle.
    const held = keys.filter((key) => found.has(key) || key.parked === 0);
    if (held.length === 0) return undefined;
    for (const key of held) {
      key.draining = true;
      key.dirty ||= !found.has(key);
    }
    const alone = careful === 1 && messages.length === 1;
    if (alone && !(await this.#markSuspect(cursor, messages[0]!.positionText))) return undefined;
    if (generation !== this.#generation) return undefined;
    const attempts = messages.map((message, i) =>
      entries[i]!.head === message.positionText ? entries[i]!.attempts : 0,
    );
    const crashes = alone ? cursor.suspectCrashes : 0;
    return this.#hold({
      messages,
      attempts,
      errors,
      alone,
      crashes,
      cursor,
      generation,
      upto: undefined,
      last: false,
      keys: held,
      entries,
    });
  }

  #limit(careful: number | undefined): number {
    const { messages } = this.#options.batch;
    return Math.min(careful ?? messages, messages);
  }

  #hold(claim: LogClaim): LogClaim {
    this.#claims.push(claim);
    return claim;
  }

  async #markSuspect(cursor: Cursor, position: string): Promise<boolean> {
    await this.#settler.idle();
    if (this.#stale) return false;
    const sentAt = this.#clock.monotonic();
    if (await this.#ownership.markSuspect(cursor, position)) {
      this.#extend(sentAt);
      return true;
    }
    this.#invalidate();
    return false;
  }

  // ── Owning ────────────────────────────────────────────────────────────────────────────────────────────────────

  #extend(sentAt: number): void {
    const { leaseMs } = this.#options;
    this.#validUntil = Math.max(this.#validUntil, sentAt + leaseMs * 0.8);
  }

  /** What is in memory no longer holds: claims are void and the next claim loads everything anew. */
  #invalidate(): void {
    this.#stale = true;
    this.#generation++;
    this.#validUntil = 0;
    this.#claims = [];
    this.#windows.forget();
    this.#settler.drop(leaseLost(this.#options.relay));
  }

  async #reload(): Promise<void> {
    await this.#settler.idle();
    this.#generation++;
    this.#claims = [];
    this.#keys.clear();
    const sentAt = this.#clock.monotonic();
    const cursors = await this.#ownership.load();
    const lanes = cursors.flatMap((cursor) => cursor.lanes);
    const rows =
      lanes.length === 0
        ? []
        : await this.#sql.query(loadBlockedSql(this.#names), [this.#options.relay, plainArray(lanes)]);
    const now = this.#clock.monotonic();
    for (const row of rows) this.#keys.load(parkedKeyOf(row, now));
    this.#cursors = cursors;
    // Only a renewal that is known to have landed gives time to publish in.
    const renewed = await this.#ownership.renew(cursors);
    if (renewed.size !== cursors.length) throw leaseLost(this.#options.relay);
    this.#stale = false;
    this.#extend(sentAt);
  }

  #planChores(view: Parameters<typeof planBalance>[0]): void {
    if (this.#chores.length > 0 || this.#left) return;
    const plan = planBalance(view, this.#options.owner);
    for (const id of plan.take) this.#chores.push(async () => void (await this.#ownership.takeOver(id)));
    if (plan.give.length > 0) this.#chores.push(() => this.#give(plan.give));
    if (view.commands)
      this.#chores.push(() => carryOutCommands(this.#sql, this.#names, this.#options.relay, this.#cursors));
  }

  async #runChores(): Promise<void> {
    await this.#settler.idle();
    const chores = this.#chores;
    this.#chores = [];
    for (const chore of chores) {
      await chore();
      // Cursors and blocked keys may have changed under the chore.
      await this.#reload();
    }
  }

  async #give(counts: readonly number[]): Promise<void> {
    for (const count of counts) {
      const richest = this.#cursors.toSorted((a, b) => b.lanes.length - a.lanes.length)[0];
      if (richest === undefined || richest.lanes.length <= count) return;
      if (!(await this.#ownership.giveAway(richest, richest.lanes.slice(-count)))) return;
      await this.#reload();
    }
  }

  /** Between windows: one cursor instead of several, and now and then a fresh row. */
  async #tidy(): Promise<void> {
    const [first, ...rest] = this.#cursors;
    if (first === undefined) return;
    const aligned =
      rest.length > 0 && rest.every((cursor) => cursor.prev === first.prev && cursor.floor === first.floor);
    if (aligned) await this.#ownership.merge(first, rest);
    else if (rest.length === 0 && first.writes >= RENUMBER_AFTER) await this.#ownership.renumber(first);
    else return;
    await this.#reload();
  }

  #cursorOf(lane: number): Cursor | undefined {
    return this.#cursors.find((cursor) => cursor.lanes.includes(lane));
  }
}
