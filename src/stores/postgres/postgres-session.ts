import type {
  AttemptError,
  Claim,
  ClaimKind,
  Clock,
  JoinOptions,
  Outcome,
  QueueSession,
  SessionState,
} from "../../core/contracts.ts";
import { carefulLimit } from "../shared/careful-limit.ts";
import { leaseLost, requireSameStreams } from "../shared/relay-errors.ts";
import { BlockedKeys } from "./blocked-keys.ts";
import type { BlockedKey } from "./blocked-keys.ts";
import { planBalance } from "./balance.ts";
import { carryOutCommands } from "./commands.ts";
import type { LogMessage } from "./log-message.ts";
import { PageReader } from "./page-reader.ts";
import { loadBlockedSql, parkedKeyOf, stillParkedSql } from "./parking-sql.ts";
import type { CopyRunner, SqlRunner } from "./postgres-client.ts";
import { plainArray } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";
import { PostgresOwnership, requireSound, requireVisible } from "./postgres-ownership.ts";
import { promoteDue } from "./schedule.ts";
import { Settler } from "./settler.ts";
import { WindowOpener } from "./window-opener.ts";

/** A new cursor row after this many writes. */
const RENUMBER_AFTER = 10_000;
/** How many due keys one claim may hold. */
const KEYS_PER_CLAIM = 256;
const UNREADABLE_RETRY_MS = 1000;
/** Lanes change hands and commands are carried out after this time, though attempts that take long go on. */
const PATIENCE_MS = 1000;

interface LogClaim extends Claim {
  readonly messages: readonly LogMessage[];
  cursor: Cursor;
  generation: number;
  /** The position the cursor reaches with it; undefined for parked messages. */
  readonly upto: string | undefined;
  readonly last: boolean;
  readonly errors: readonly (readonly AttemptError[])[] | undefined;
  /** The failed keys it holds, and which of them each message belongs to. */
  keys: readonly BlockedKey[];
  entries: readonly BlockedKey[];
  /** Keys whose messages went over to claims of their own. */
  readonly detached: Set<BlockedKey>;
  /** Nobody works on it any more. */
  ended: boolean;
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
  /** Claims of new messages handed out and not settled yet, in order. */
  #newClaims: LogClaim[] = [];
  /** Those of failed keys, each with keys of its own. */
  readonly #retryClaims = new Set<LogClaim>();
  #stale = true;
  #left = false;
  #paused = false;
  #chores: Chore[] = [];
  /** Since when chores wait for claims in hand. */
  #choresSince: number | undefined;
  #scheduledDueAt: number | undefined;
  /** Of the server, which changes with every promotion. */
  #timeline: string | null = null;
  /** The claim that is under way only reads at this moment. */
  #reading = false;
  /** Claims come one after another. */
  #turn: Promise<unknown> = Promise.resolve();

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

  isCurrent(claim: LogClaim): boolean {
    return claim.generation === this.#generation;
  }

  async join(): Promise<void> {
    const view = await this.#ownership.look();
    requireVisible(view);
    if (view.exists) requireSameStreams(this.#options, view.streams);
    if (!view.standby) await this.#ownership.requireOwnLog();
    if (!view.exists && !view.standby) await this.#ownership.createRelay(this.#options.start, this.#options.streams);
    try {
      // First for the lanes, then for what waits in them.
      for (let look = 1; look <= 2; look++) {
        await this.tend();
        await this.#runChores();
      }
    } catch (error) {
      // Whoever was refused must not count as a process to share lanes with.
      await this.#ownership.release(this.#cursors).catch(() => undefined);
      throw error;
    }
  }

  claim(kind: ClaimKind): Promise<LogClaim | undefined> {
    const claim = async () => {
      try {
        return await this.#claim(kind);
      } catch (error) {
        // A window may have been opened though its answer was lost: what is in memory may be behind.
        if (!this.#reading) this.#invalidate();
        // A read has changed nothing: what is in hand is settled first, or it would go out again.
        else if (this.#chores.length === 0) this.#chores.push(() => Promise.resolve());
        throw error;
      } finally {
        this.#reading = false;
      }
    };
    const turn = this.#turn.then(claim, claim);
    this.#turn = turn;
    return turn;
  }

  async #claim(kind: ClaimKind): Promise<LogClaim | undefined> {
    if (this.#left) return undefined;
    if (this.#stale) await this.#reload();
    if (this.#chores.length > 0) {
      // Lanes change hands and commands are carried out between batches, never under one.
      if (!this.#mayDoChores()) return undefined;
      await this.#runChores();
    }
    if (this.#paused || this.#cursors.length === 0) return undefined;
    return kind === "new" ? this.#claimNew() : this.#claimParked();
  }

  /** Nothing is in hand, or only attempts that take long. */
  #mayDoChores(): boolean {
    const now = this.#clock.monotonic();
    this.#choresSince ??= now;
    if (this.#newClaims.length > 0) return false;
    return this.#retryClaims.size === 0 || now - this.#choresSince > PATIENCE_MS;
  }

  get #inHand(): boolean {
    return this.#newClaims.length > 0 || this.#retryClaims.size > 0;
  }

  admit(claim: LogClaim): readonly boolean[] | "all" {
    // Its settle would be refused, so whatever it let out would go out again.
    if (claim.generation !== this.#generation) return claim.messages.map(() => false);
    if (claim.kind === "retry" || this.#keys.size === 0) return "all";
    return claim.messages.map((message) => !this.#keys.has(message));
  }

  settle(claim: LogClaim, outcomes: readonly Outcome[]): Promise<void> {
    claim.ended = true;
    const current = claim.generation === this.#generation;
    // Out of turn would step over a claim that was never settled.
    if (current && claim.kind === "new" && this.#newClaims[0] !== claim) this.#invalidate();
    if (claim.generation !== this.#generation) return Promise.reject(leaseLost(this.#options.relay));
    if (claim.kind === "new") this.#newClaims.shift();
    else this.#retryClaims.delete(claim);
    // The rest of an incomplete claim is not handed out again by this session: it goes to whoever comes after.
    if (outcomes.length < claim.messages.length) this.#left = true;
    return this.#settler.add(claim, outcomes);
  }

  detach(claim: LogClaim, index: number): LogClaim {
    const message = claim.messages[index]!;
    const current = claim.generation === this.#generation;
    // Of a claim that is void, nothing counts any more.
    const entry = claim.entries[index] ?? (current ? this.#keys.ensure(message) : undefined);
    const own: LogClaim = {
      ...claim,
      kind: "retry",
      messages: [message],
      attempts: [claim.attempts?.[index] ?? 0],
      errors: claim.errors && [claim.errors[index]!],
      routes: claim.routes && [claim.routes[index]],
      upto: undefined,
      last: false,
      keys: entry === undefined ? [] : [entry],
      entries: entry === undefined ? [] : [entry],
      detached: new Set(),
      ended: false,
    };
    if (entry === undefined || !current) return own;
    entry.draining = true;
    claim.detached.add(entry);
    this.#retryClaims.add(own);
    return own;
  }

  async putDown(claim: LogClaim): Promise<void> {
    await this.#whileAlone(claim, () => this.#ownership.clearSuspect(claim.cursor));
  }

  async pickUp(claim: LogClaim): Promise<void> {
    await this.#whileAlone(claim, () => this.#writeSuspect(claim.cursor, claim.messages[0]!.positionText));
  }

  async #whileAlone(claim: LogClaim, write: () => Promise<boolean>): Promise<void> {
    if (!claim.alone) return;
    const written = await this.#settler.alone(async () => claim.generation === this.#generation && (await write()));
    if (written) return;
    this.#invalidate();
    throw leaseLost(this.#options.relay);
  }

  abandon(claim: LogClaim): void {
    claim.ended = true;
    if (claim.generation === this.#generation) this.#invalidate();
  }

  async tend(): Promise<SessionState> {
    // Looked at first: a standby cannot be written to, and writing to a restored copy would cover up what it is.
    const view = await this.#ownership.look();
    requireSound(view, this.#options.relay);
    // Another server has taken over: what the last one had accepted may be gone.
    if (this.#timeline !== null && this.#timeline !== view.timeline) this.#invalidate();
    this.#timeline = view.timeline;
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

  nextRetryAt(): number | undefined {
    return this.#paused ? undefined : this.#keys.nextDueAt();
  }

  nextScheduledAt(): number | undefined {
    return this.#scheduledDueAt;
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
    if (this.#newClaims.length > 0) return undefined;
    if (this.#needsTidying()) {
      this.#chores.push(() => this.#tidy());
      return this.#claim("new");
    }
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
    const areCurrent = () => cursors === this.#cursors && !this.#stale;
    const opened = await this.#settler.alone(() => this.#windows.open(cursors, areCurrent));
    if (opened === "not ours") this.#invalidate();
    if (opened === "opened") this.#extend(sentAt);
    return opened === "opened";
  }

  async #page(cursor: Cursor): Promise<LogClaim | undefined> {
    const careful = carefulLimit(cursor.crashes, cursor.tried);
    if (careful !== undefined && this.#inHand) return undefined;
    const generation = this.#generation;
    const { messages, last } = await this.#read(this.#reader.page(cursor, this.#limit(careful)));
    if (generation !== this.#generation) return undefined;
    const upto = messages.at(-1)?.positionText ?? cursor.fetched;
    const alone = careful === 1 && messages.length === 1;
    if (alone && !(await this.#markSuspect(cursor, messages[0]!.positionText))) return undefined;
    if (generation !== this.#generation) return undefined;
    cursor.fetched = upto;
    cursor.exhausted = last;
    const crashes = alone ? cursor.suspectCrashes : 0;
    return this.#hold({
      kind: "new",
      messages,
      attempts: undefined,
      errors: undefined,
      alone,
      crashes,
      cursor,
      generation,
      upto,
      last,
      keys: [],
      entries: [],
      detached: new Set(),
      ended: false,
    });
  }

  async #claimParked(): Promise<LogClaim | undefined> {
    // One claim belongs to one cursor, so that one settle can fence it; a careful owner takes one key.
    let cursor: Cursor | undefined;
    const accept = ({ lane }: BlockedKey) => this.#cursorOf(lane) === (cursor ??= this.#cursorOf(lane));
    const keysPerClaim = this.#isCareful ? 1 : KEYS_PER_CLAIM;
    if (this.#isCareful && this.#inHand) return undefined;
    const keys = this.#keys.due(this.#clock.monotonic(), keysPerClaim, accept);
    if (cursor === undefined) return undefined;
    try {
      return await this.#drain(cursor, keys);
    } finally {
      for (const key of keys) if (!key.draining) this.#keys.schedule(key);
    }
  }

  async #drain(cursor: Cursor, keys: readonly BlockedKey[]): Promise<LogClaim | undefined> {
    const careful = carefulLimit(cursor.crashes, cursor.tried);
    const generation = this.#generation;
    const { relay } = this.#options;
    const parked = this.#reader.parked(relay, keys, this.#limit(careful));
    const { messages, entries, errors, full } = await this.#read(parked);
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
    const alone = careful === 1 && messages.length === 1;
    if (alone && !(await this.#markSuspect(cursor, messages[0]!.positionText))) return undefined;
    if (generation !== this.#generation) return undefined;
    for (const key of held) {
      key.draining = true;
      key.dirty ||= !found.has(key);
    }
    const attempts = messages.map((message, i) =>
      entries[i]!.head === message.positionText ? entries[i]!.attempts : 0,
    );
    const routes = entries.map(({ route }) => route);
    const crashes = alone ? cursor.suspectCrashes : 0;
    return this.#hold({
      kind: "retry",
      messages,
      attempts,
      errors,
      routes: routes.some((route) => route !== undefined) ? routes : undefined,
      alone,
      crashes,
      cursor,
      generation,
      upto: undefined,
      last: false,
      keys: held,
      entries,
      detached: new Set(),
      ended: false,
    });
  }

  async #read<T>(reading: Promise<T>): Promise<T> {
    this.#reading = true;
    const read = await reading;
    this.#reading = false;
    return read;
  }

  get #isCareful(): boolean {
    return this.#cursors.some((cursor) => carefulLimit(cursor.crashes, cursor.tried) !== undefined);
  }

  #limit(careful: number | undefined): number {
    const { messages } = this.#options.batch;
    return Math.min(careful ?? messages, messages);
  }

  #hold(claim: LogClaim): LogClaim {
    if (claim.kind === "new") this.#newClaims.push(claim);
    else this.#retryClaims.add(claim);
    return claim;
  }

  #markSuspect(cursor: Cursor, position: string): Promise<boolean> {
    return this.#settler.alone(() => this.#writeSuspect(cursor, position));
  }

  async #writeSuspect(cursor: Cursor, position: string): Promise<boolean> {
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
    this.#forgetClaims();
    this.#windows.forget();
    this.#settler.drop(leaseLost(this.#options.relay));
  }

  #forgetClaims(): void {
    this.#newClaims = [];
    this.#retryClaims.clear();
  }

  async #reload(): Promise<void> {
    await this.#settler.idle();
    this.#generation++;
    this.#forgetClaims();
    // Attempts that are still under way count for nothing: their messages are claimed again.
    this.#settler.drop(leaseLost(this.#options.relay));
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
    const goOn = [...this.#retryClaims];
    if (this.#inHand) this.#generation++;
    this.#forgetClaims();
    const chores = this.#chores;
    this.#chores = [];
    this.#choresSince = undefined;
    for (const chore of chores) {
      await chore();
      // Cursors and blocked keys may have changed under the chore.
      await this.#reload();
    }
    if (goOn.length > 0) await this.#carryOver(goOn);
  }

  /**
   * Attempts that go on are settled as ever if their messages are still parked in lanes of this process: to make them again
   * would send what may be on its way already. The others are void.
   */
  async #carryOver(claims: readonly LogClaim[]): Promise<void> {
    const generation = this.#generation;
    const positions = claims.flatMap(({ messages }) => messages.map(({ positionText }) => positionText));
    const rows = await this.#sql.query(stillParkedSql(this.#names), [this.#options.relay, plainArray(positions)]);
    if (generation !== this.#generation) return;
    const parked = new Set(rows.map(([position]) => position));
    for (const claim of claims) {
      const entries = claim.messages.flatMap((message) => {
        const entry = parked.has(message.positionText) ? this.#keys.of(message) : undefined;
        return entry === undefined ? [] : [entry];
      });
      const [cursor, ...others] = new Set(entries.map(({ lane }) => this.#cursorOf(lane)));
      if (claim.ended || cursor === undefined || others.length > 0 || entries.length < claim.messages.length) continue;
      Object.assign(claim, { generation, cursor, entries, keys: [...new Set(entries)] });
      for (const key of claim.keys) key.draining = true;
      this.#retryClaims.add(claim);
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
  #needsTidying(): boolean {
    const [first, ...rest] = this.#cursors;
    if (first === undefined) return false;
    if (rest.length === 0) return first.writes >= RENUMBER_AFTER;
    return rest.every((cursor) => cursor.prev === first.prev && cursor.floor === first.floor);
  }

  async #tidy(): Promise<void> {
    const [first, ...rest] = this.#cursors;
    if (first === undefined || this.#cursors.some((cursor) => cursor.cur !== undefined)) return;
    if (rest.length > 0) await this.#ownership.merge(first, rest);
    else await this.#ownership.renumber(first);
  }

  #cursorOf(lane: number): Cursor | undefined {
    return this.#cursors.find((cursor) => cursor.lanes.includes(lane));
  }
}
