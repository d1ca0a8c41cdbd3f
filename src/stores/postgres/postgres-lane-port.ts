import type { Clock, JoinOptions } from "../../core/contracts.ts";
import { Mutex } from "../../core/mutex.ts";
import type { BlockedKey } from "../../lanes/blocked-keys.ts";
import type {
  Blame,
  Entered,
  LanePort,
  Limit,
  NewPage,
  NoPage,
  ParkedPage,
  Settlement,
  Tended,
} from "../../lanes/lane-port.ts";
import { requireSameStreams } from "../../lanes/relay-errors.ts";
import { carryOutCommands, MOST_COMMANDS } from "./commands.ts";
import type { LogMessage } from "./log-message.ts";
import { PageReader, type Page } from "./page-reader.ts";
import { lastEditSql, loadBlockedSql, stillParkedSql, storedKeyOf } from "./parking-sql.ts";
import { plainArray, type CopyRunner, type Row } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { isCancelled, isPassing } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";
import { laneViews, PostgresOwnership, requireSound, type RelayView } from "./postgres-ownership.ts";
import { promoteDue } from "./schedule.ts";
import { progressOf, settleStatement, writtenSql, type PageEnd } from "./settle-sql.ts";
import type { Ahead } from "./wal/decoded-transactions.ts";
import { WalSource, type WalSourceOptions } from "./wal/wal-source.ts";
import { WindowOpener } from "./window-opener.ts";

/** A new cursor row after this many writes. */
const RENUMBER_AFTER = 10_000;
/** A lease of which this part is left is not renewed yet. */
const LONG = 0.9;

export interface PostgresLanePortOptions {
  readonly sql: CopyRunner;
  readonly names: Names;
  readonly options: JoinOptions;
  readonly clock: Clock;
  /** New messages come by the server's stream. */
  readonly stream: Pick<WalSourceOptions, "replication" | "wake" | "tell"> | undefined;
}

/** A part is a cursor of the log; a page is a piece of its open window, or of the server's stream. */
export class PostgresLanePort implements LanePort<Cursor, LogMessage, PageEnd> {
  readonly keysPerClaim: number = 256;
  readonly promotesAlone: boolean = false;
  readonly isPassing: (error: unknown) => boolean = isPassing;
  readonly isSlow: (error: unknown) => boolean = isCancelled;
  readonly #sql: CopyRunner;
  readonly #names: Names;
  readonly #options: JoinOptions;
  readonly #lease: string;
  readonly #ownership: PostgresOwnership;
  readonly #reader: PageReader;
  readonly #windows: WindowOpener;
  /** What raises the sequence number of a cursor goes one after another. */
  readonly #fenced: Mutex = new Mutex();
  #cursors: readonly Cursor[] = [];
  #view: RelayView | undefined;
  /** What a process that streamed has left, by the point of its cursor. */
  #ahead: Map<string, Ahead> = new Map();
  #commandsAtATime = MOST_COMMANDS;
  /** Nothing was read since the cursors were last put in order. */
  #tidied = false;
  /** The answer to the last settle was lost: until it is sent again, cursors may be behind their rows. */
  #inDoubt = false;
  /** New messages by the server's stream. */
  readonly #wal: WalSource | undefined;
  readonly #clock: Clock;
  /** The lease runs until then at least. */
  #leaseUntil = 0;
  /** What other processes were told of the source. */
  #told: string | undefined;
  #renewedAt = Number.NEGATIVE_INFINITY;

  constructor({ sql, names, options, clock, stream }: PostgresLanePortOptions) {
    this.#sql = sql;
    this.#names = names;
    this.#options = options;
    this.#lease = `${options.leaseMs} ms`;
    this.#clock = clock;
    this.#ownership = new PostgresOwnership(sql, names, { ...options, streams: stream !== undefined });
    this.#reader = new PageReader(sql, names, options.relay, options.batch);
    this.#windows = new WindowOpener(sql, names, this.#lease);
    if (stream === undefined) return;
    const wants = ({ stream: name }: { stream: string }) =>
      this.#reader.streams === null ? !name.startsWith("inbox.") : this.#reader.streams.includes(name);
    const isInDoubt = () => this.#inDoubt;
    this.#wal = new WalSource({ sql, names, join: options, clock, fenced: this.#fenced, wants, isInDoubt, ...stream });
  }

  async open(): Promise<void> {
    const view = await this.#ownership.look();
    const { relay, start, streams } = this.#options;
    requireSound({ ...view, exists: true }, relay);
    if (view.exists) requireSameStreams(this.#options, view.streams);
    await this.#ownership.requireOwnLog();
    if (!view.exists) await this.#ownership.createRelay(start, streams);
  }

  async enter(ongoing: readonly LogMessage[]): Promise<Entered<Cursor>> {
    this.#windows.forget();
    this.#inDoubt = false;
    // Behind an anchor that is being written.
    if (this.#wal !== undefined) await this.#fenced.run(async () => this.#wal!.interrupt());
    const sentAt = this.#clock.monotonic();
    const cursors = await this.#ownership.enter();
    this.#cursors = cursors;
    this.#extend(sentAt);
    const lanes = this.#cursors.flatMap((cursor) => cursor.lanes);
    if (lanes.length === 0) return { parts: this.#cursors, keys: [], ongoing: new Set() };
    const { relay } = this.#options;
    this.#ahead = new Map();
    for (const { prev, ahead } of cursors) {
      if (ahead.size > 0) this.#ahead.set(prev, new Map([...(this.#ahead.get(prev) ?? []), ...ahead]));
    }
    this.#wal?.entered(cursors);
    const keys = await this.#sql.query(loadBlockedSql(this.#names), [relay, plainArray(lanes)]);
    // After the epoch rose: a process that reads what was rewound then sees edits from before the rewind.
    const [edited] = await this.#sql.query(lastEditSql(this.#names), [relay]);
    this.#reader.editedUpTo = BigInt(edited![0]!);
    const positions = plainArray(ongoing.map(({ ref }) => ref));
    const parked = ongoing.length === 0 ? [] : await this.#sql.query(stillParkedSql(this.#names), [relay, positions]);
    return {
      parts: this.#cursors,
      keys: keys.map(storedKeyOf),
      ongoing: new Set(parked.map(([position]) => position!)),
    };
  }

  get isTold(): boolean {
    return this.#wal?.isStreaming ?? false;
  }

  async tend(cursors: readonly Cursor[]): Promise<Tended> {
    // Looked at first: a standby cannot be written to, and writing to a restored copy would cover up what it is.
    const view = await this.#ownership.look();
    if (!view.exists) this.#wal?.relayDropped();
    requireSound(view, this.#options.relay);
    // Another server has taken over: what the last one had accepted may be gone.
    const sameServer = this.#view === undefined || this.#view.timeline === view.timeline;
    this.#view = view;
    this.#reader.streams = view.streams;
    const renewed = sameServer && (await this.#renew(view, cursors));
    await this.#wal?.tend(view);
    const { paused, members, commands, scheduledInMs } = view;
    const self = this.#options.owner;
    // Taken by a statement that arrived after it was given up.
    const isUnknown = (id: string) => cursors.every((cursor) => cursor.id !== id);
    const outdated = view.cursors.some(({ id, owner, lanes }) => owner === self && lanes.length > 0 && isUnknown(id));
    const together = this.#wal !== undefined && view.allStream;
    const seen = { self, paused, members, together, lanes: laneViews(view), commands, scheduledInMs, outdated };
    return { view: seen, renewed };
  }

  /** Each renewal is a write to the disk: a lease that has just begun waits for a later look. */
  async #renew(view: RelayView, cursors: readonly Cursor[]): Promise<boolean | undefined> {
    const told = `${this.#wal?.isAble} ${this.#wal?.description}`;
    const sentAt = this.#clock.monotonic();
    const isFresh = told === this.#told && sentAt - this.#renewedAt < this.#options.leaseMs * (1 - LONG);
    if (isFresh && this.#lastsLong(view, cursors)) return undefined;
    this.#told = undefined;
    const renewed = await this.#ownership.renew(cursors, this.#wal);
    if (!renewed) return false;
    this.#told = told;
    this.#renewedAt = sentAt;
    this.#extend(sentAt);
    return true;
  }

  /** As the database has it: by its clock, and with nothing changed by others. */
  #lastsLong({ members, cursors: seen }: RelayView, cursors: readonly Cursor[]): boolean {
    const { owner, leaseMs } = this.#options;
    const isAsLeft = ({ id, fence, seq }: Cursor): boolean =>
      seen.some((its) => {
        const leftMs = -(its.freeMs ?? 0);
        const isMine = its.id === id && its.owner === owner && its.fence === fence;
        return isMine && BigInt(its.seq) >= seq && leftMs > leaseMs * LONG;
      });
    return cursors.length > 0 && members.includes(owner) && cursors.every(isAsLeft);
  }

  #extend(sentAt: number): void {
    this.#leaseUntil = Math.max(this.#leaseUntil, sentAt + this.#options.leaseMs);
  }

  async take(lanes: readonly number[]): Promise<void> {
    for (const { id, lanes: its } of this.#view?.cursors ?? []) {
      const wanted = its.filter((lane) => lanes.includes(lane));
      if (wanted.length === 0) continue;
      if (wanted.length === its.length) await this.#ownership.take(id);
      else await this.#ownership.takeSome(id, wanted);
    }
  }

  async give(cursors: readonly Cursor[], lanes: readonly number[] | "all"): Promise<void> {
    if (lanes === "all") return this.#leave();
    await this.#noteAhead();
    for (const cursor of cursors) {
      const some = cursor.lanes.filter((lane) => lanes.includes(lane));
      if (some.length === 0) continue;
      if (some.length === cursor.lanes.length) await this.#ownership.give(cursor);
      else await this.#ownership.giveSome(cursor, some);
    }
  }

  async #leave(): Promise<void> {
    await this.#fenced.run(async () => this.#wal?.close());
    await this.#noteAhead().catch((error: unknown) => {
      // Otherwise the next owner gets some messages twice.
      if (isPassing(error)) throw error;
    });
    await this.#ownership.leave();
    await this.#wal?.forget();
  }

  /** What the stream brought and is settled beyond the cursor, the next owner leaves out. */
  async #noteAhead(): Promise<void> {
    const [cursor] = this.#cursors;
    if (this.#wal === undefined || cursor === undefined || this.#cursors.length > 1) return;
    await this.#fenced.run(() => this.#wal!.noteAhead(cursor));
  }

  async readNew(
    cursors: readonly Cursor[],
    limit: Limit,
    blame: Blame,
  ): Promise<NewPage<Cursor, LogMessage, PageEnd> | NoPage> {
    if (this.#wal === undefined) return this.#readWindow(cursors, limit, blame);
    const streamed = await this.#wal.next(cursors, limit, blame);
    if (streamed === "nothing") return !this.#tidied && needsTidying(cursors) ? "untidy" : streamed;
    if (streamed === "lost") return streamed;
    if (streamed === "poll") {
      const page = await this.#readWindow(cursors, limit, blame);
      if (page === "nothing") this.#wal.caughtUp();
      return page;
    }
    this.#tidied = false;
    const { messages } = streamed;
    if (messages.some(({ position }) => position <= this.#reader.editedUpTo)) {
      await this.#reader.layEditsOver(messages.toSorted((a, b) => (a.position < b.position ? -1 : 1)));
    }
    return { part: cursors[0]!, messages, attempts: undefined, crashes: 0, mark: { streamed } };
  }

  async #readWindow(
    cursors: readonly Cursor[],
    limit: Limit,
    blame: Blame,
  ): Promise<NewPage<Cursor, LogMessage, PageEnd> | NoPage> {
    for (;;) {
      const open = cursors.find(({ cur, exhausted }) => cur !== undefined && !exhausted);
      if (open !== undefined) return lessIfCancelled(this.#page(open, limit, blame));
      // The next window is opened when this one is settled.
      if (cursors.some(({ cur }) => cur !== undefined)) return "nothing";
      if (this.#inDoubt) return "nothing";
      if (!this.#tidied && needsTidying(cursors) && this.#isNothingAhead) return "untidy";
      const areCurrent = () => cursors === this.#cursors;
      const anyway = cursors.length === 1 && this.#wal?.needsWindow(cursors[0]!) === true;
      const opened = await this.#fenced.run(() => this.#windows.open(cursors, areCurrent, anyway));
      if (opened === "not ours") return "lost";
      if (opened === "nothing new") return "nothing";
      this.#tidied = false;
    }
  }

  async #page(cursor: Cursor, limit: Limit, blame: Blame): Promise<NewPage<Cursor, LogMessage, PageEnd> | NoPage> {
    const ahead = this.#aheadOf(cursor);
    const isNew = ({ ref, id }: LogMessage) => ahead?.get(ref) !== id;
    let upto = cursor.fetched;
    let leftOut = 0;
    let page: Page;
    let messages: readonly LogMessage[];
    // A page with nothing to hand out would be taken for the end of the log.
    do {
      page = await this.#reader.page({ ...cursor, fetched: upto }, limit.messages);
      upto = page.messages.at(-1)?.ref ?? upto;
      messages = ahead === undefined || ahead.size === 0 ? page.messages : page.messages.filter(isNew);
      leftOut += page.messages.length - messages.length;
    } while (messages.length === 0 && page.messages.length > 0 && !page.last);
    const { last } = page;
    const isBlamed = messages.length === 1 && isToBlame(blame, cursor, messages[0]!);
    if (isBlamed && !(await this.suspect(cursor, messages[0]!, true))) return "lost";
    cursor.fetched = upto;
    cursor.exhausted = last;
    const crashes = isBlamed ? cursor.suspectCrashes : 0;
    return { part: cursor, messages, attempts: undefined, crashes, mark: { upto, last, leftOut } };
  }

  /** Messages beyond this point of the cursor that came by a stream and are settled. */
  #aheadOf(cursor: Cursor): Ahead | undefined {
    const mine = this.#wal?.aheadOf(cursor);
    return mine !== undefined && mine.size > 0 ? mine : this.#ahead.get(cursor.prev);
  }

  get #isNothingAhead(): boolean {
    return this.#cursors.every((cursor) => (this.#aheadOf(cursor)?.size ?? 0) === 0);
  }

  readParked(
    cursor: Cursor,
    keys: readonly BlockedKey[],
    limit: Limit,
    blame: Blame,
  ): Promise<ParkedPage<LogMessage> | "lost" | "slow"> {
    return lessIfCancelled(this.#parked(cursor, keys, limit, blame));
  }

  async #parked(
    cursor: Cursor,
    keys: readonly BlockedKey[],
    limit: Limit,
    blame: Blame,
  ): Promise<ParkedPage<LogMessage> | "lost"> {
    const page = await this.#reader.parked(keys, limit.messages);
    const [message] = page.messages;
    if (message === undefined || !isToBlame(blame, cursor, message)) return { ...page, crashes: 0 };
    return (await this.suspect(cursor, message, true)) ? { ...page, crashes: cursor.suspectCrashes } : "lost";
  }

  suspect(cursor: Cursor, message: LogMessage, inHand: boolean): Promise<boolean> {
    return this.#fenced.run(() => this.#ownership.markSuspect(cursor, message, inHand));
  }

  write(cursor: Cursor, settlement: Settlement<LogMessage, PageEnd>): Promise<boolean> {
    return this.#fenced.run(() => this.#write(cursor, settlement));
  }

  async #write(cursor: Cursor, settlement: Settlement<LogMessage, PageEnd>): Promise<boolean> {
    const progress = progressOf(settlement);
    const reopen =
      settlement.mayOpenNext &&
      progress.finish &&
      this.#cursors.length === 1 &&
      cursor.writes < RENUMBER_AFTER &&
      this.#wal?.wantsPause !== true;
    const cleared = suspectsSettledBy(settlement, cursor);
    if (cleared.length === 0 && this.#needsNoWrite(settlement)) {
      this.#wal!.count(settlement.published);
      this.#noteStreamed(settlement);
      return true;
    }
    const { relay } = this.#options;
    const uncounted = this.#wal?.uncounted ?? 0;
    const input = { relay, lease: this.#lease, cursor, settlement, progress, reopen, cleared, uncounted };
    const { text, params } = settleStatement(this.#names, input);
    const sentAt = this.#clock.monotonic();
    this.#wal?.sends(settlement.token, settlement.pages);
    let row: Row | undefined;
    try {
      [row] = await this.#sql.query(text, params);
      // The answer to an earlier try may have been lost.
      if (row === undefined) {
        const { id, fence, seq } = cursor;
        [row] = await this.#sql.query(writtenSql(this.#names), [id, settlement.token, fence, String(seq)]);
      }
      this.#inDoubt = false;
    } catch (error) {
      this.#inDoubt = true;
      throw error;
    }
    if (row === undefined) return false;
    const [, cur, finished, lo] = row;
    this.#extend(sentAt);
    this.#wal?.written(settlement.token, uncounted);
    this.#noteStreamed(settlement);
    cursor.seq++;
    cursor.writes++;
    if (cleared.length > 0) cursor.suspects = new Map([...cursor.suspects].filter(([ref]) => !cleared.includes(ref)));
    if (settlement.clearCrashes) cursor.crashes = 0;
    if (progress.finish) {
      Object.assign(cursor, {
        prev: cursor.cur,
        cur: undefined,
        finished: "{}",
        done: "0",
        fetched: "0",
        exhausted: false,
      });
      if (cur != null) Object.assign(cursor, { cur, finished: finished ?? "{}", lo: BigInt(lo!) });
      if (reopen) this.#windows.noteOpened(cur != null);
    } else if (progress.done !== undefined) {
      cursor.done = progress.done;
    }
    return true;
  }

  /** Of a stream, and all of it went out: an anchor writes that later, with much else. Not under a lease that may be over. */
  #needsNoWrite(settlement: Settlement<LogMessage, PageEnd>): boolean {
    const { pages, park, retried, unpark, dead, block, unblock, clearCrashes } = settlement;
    const plain = park.length + retried.length + unpark.length + dead.length + block.length + unblock.length === 0;
    const streamed = pages.length > 0 && pages.every(({ mark }) => "streamed" in mark);
    const held = this.#clock.monotonic() < this.#leaseUntil && this.#wal?.isLost === false;
    return plain && streamed && !clearCrashes && held;
  }

  #noteStreamed({ pages }: Settlement<LogMessage, PageEnd>): void {
    for (const { mark, messages } of pages) {
      if ("streamed" in mark) this.#wal!.settled(mark.streamed, messages.length);
    }
  }

  promote(): Promise<number | null> {
    return promoteDue(this.#sql, this.#names);
  }

  async carryOut(cursors: readonly Cursor[]): Promise<void> {
    const limit = Math.min(MOST_COMMANDS, this.#commandsAtATime * 2);
    this.#commandsAtATime = await carryOutCommands(this.#sql, this.#names, this.#options.relay, cursors, limit);
  }

  /** Between windows: one cursor instead of several, and now and then a fresh row. */
  async tidy(cursors: readonly Cursor[]): Promise<void> {
    this.#tidied = true;
    const [first, ...rest] = cursors;
    if (first === undefined || cursors.some(({ cur }) => cur !== undefined)) return;
    if (rest.length > 0) await this.#ownership.merge(first, rest);
    else await this.#ownership.renumber(first);
  }
}

function isToBlame(blame: Blame, { suspects }: Cursor, { ref }: LogMessage): boolean {
  return blame === "any" || (blame === "known" && (suspects.get(ref) ?? 0) > 0);
}

function suspectsSettledBy(settlement: Settlement<LogMessage, PageEnd>, { suspects }: Cursor): string[] {
  if (suspects.size === 0) return [];
  const { pages, park, retried, unpark, dead } = settlement;
  const settled = [
    ...pages.flatMap((page) => page.messages),
    ...[...park, ...retried, ...unpark, ...dead].map((one) => one.message),
  ];
  return settled.map(({ ref }) => ref).filter((ref) => suspects.has(ref));
}

function needsTidying([first, ...rest]: readonly Cursor[]): boolean {
  if (first === undefined) return false;
  if (rest.length === 0) return first.writes >= RENUMBER_AFTER;
  return rest.every(({ prev, floor }) => prev === first.prev && floor === first.floor);
}

/** The server cancelled the statement, as it does after `statement_timeout`: less is to be asked for. */
function lessIfCancelled<T>(reading: Promise<T>): Promise<T | "slow"> {
  return reading.catch((error: unknown) => {
    if (isCancelled(error)) return "slow";
    throw error;
  });
}
