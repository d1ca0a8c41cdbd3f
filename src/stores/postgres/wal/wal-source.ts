import { backoffMs } from "../../../core/backoff.ts";
import type { Clock, JoinOptions, SourceEvent } from "../../../core/contracts.ts";
import { LANES } from "../../../core/lane.ts";
import type { Mutex } from "../../../core/mutex.ts";
import { uuidv7 } from "../../../core/uuid.ts";
import type { Limit } from "../../../lanes/lane-port.ts";
import type { SqlRunner } from "../postgres-client.ts";
import type { Cursor } from "../postgres-cursor.ts";
import type { Names } from "../postgres-names.ts";
import type { EnteredCursor, RelayView } from "../postgres-ownership.ts";
import { fitSlot, noteAhead } from "./anchor-sql.ts";
import type { Ahead, StreamPage } from "./decoded-transactions.ts";
import { parseLsn, type Lsn } from "./pgoutput.ts";
import { ReplicationConnection, type ReplicationClient } from "./replication-connection.ts";
import { parseSnapshot } from "./snapshot.ts";
import type { StreamedMessage } from "./streamed-message.ts";
import { explainStreamError, requireStreamable, WalRefusal } from "./wal-refusal.ts";
import {
  createSlotCommand,
  databaseName,
  dropSlot,
  endMaking,
  endReader,
  lookAtSlot,
  slotName,
  startCommand,
  type Slot,
} from "./wal-slot.ts";
import { WalStream } from "./wal-stream.ts";

/** How the store reaches the server's log. */
export interface ReplicationSettings {
  readonly connect: () => ReplicationClient;
  readonly maxRetainedBytes: number;
  readonly failover: boolean;
}

export interface WalSourceOptions {
  readonly sql: SqlRunner;
  readonly names: Names;
  readonly join: JoinOptions;
  readonly clock: Clock;
  readonly fenced: Mutex;
  readonly replication: ReplicationSettings;
  readonly wants: (message: StreamedMessage) => boolean;
  /** There may be something to claim. */
  readonly wake: () => void;
  readonly tell: (event: SourceEvent) => void;
}

type State =
  /** Messages come by polling. */
  | { readonly phase: "polling" }
  /** The slot is looked at or made, or the stream is opened; polling goes on. */
  | { readonly phase: "preparing"; making?: ReplicationConnection }
  /** The slot is there: polling has to go past the transaction `after`, and then the stream brings all that follows. */
  | { readonly phase: "barrier"; readonly from: Lsn; readonly after: bigint }
  /** The stream is open; it takes over when polling has finished its window. */
  | { readonly phase: "open"; readonly stream: WalStream; readonly how: "scan" | "resume" }
  | { readonly phase: "streaming"; readonly stream: WalStream }
  /** The stream is over; polling takes over when what came by it is settled. */
  | { readonly phase: "ending"; readonly stream: WalStream };

const POLLING: State = { phase: "polling" };
/** A stream that has so much to catch up with is not resumed: polling is faster. */
const MOST_BEHIND = 64 * 1_048_576;
const BACKOFF = { baseMs: 1000, maxMs: 60_000 };
/** A stream that went on for so long was no failed attempt. */
const LASTED_MS = 60_000;
/** With nothing going out for this long the slot is given up: polling costs the server nothing while it waits. */
const STUCK_MS = 30_000;
const GUARD_MS = 5000;
/** An idle log gets a window of its own no more often than this while the slot is waited for. */
const WINDOW_MS = 100;

/**
 * New messages from the server's own log. Polling is where it begins and where it goes back to, whatever happens: the
 * cursor is at every moment one that polling could go on from, and what was delivered beyond it is left out then.
 */
export class WalSource {
  readonly #options: WalSourceOptions;
  #state: State = POLLING;
  /** With all lanes, and the only one: otherwise there is no stream. */
  #cursor: Cursor | undefined;
  #slot: string | undefined;
  #wanted = false;
  #pausedSince: number | undefined;
  #alone = false;
  /** Delivered beyond `prev` and settled. */
  #ahead: { readonly prev: string; readonly ids: Ahead } = { prev: "", ids: new Map() };
  #lastWrite: string | undefined;
  #uncounted = 0;
  /** Pages that are handed out and not settled. */
  #inHand = 0;
  #movedAt = 0;
  #attempts = 0;
  #nextFrom = Number.NEGATIVE_INFINITY;
  #since = 0;
  #guardedAt = Number.NEGATIVE_INFINITY;
  #windowAt = Number.NEGATIVE_INFINITY;
  /** Why there is no stream, as it was last told. */
  #reason: string | undefined;
  #tellsStream = false;
  /** The cursor is another's, or it is not known where it stands. */
  #lost = false;
  #left = false;
  /** A slot was being made when the lanes were given back. */
  #making: ReplicationConnection | undefined;

  constructor(options: WalSourceOptions) {
    this.#options = options;
  }

  /** How messages come at this moment, for people. */
  get description(): string {
    if (this.#state.phase === "streaming") return "stream";
    return this.#reason === undefined ? "polling" : `polling: ${this.#reason}`;
  }

  // ── Loads ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Before everything is loaded anew: what came and is not settled will be read again. */
  interrupt(): void {
    const state = this.#state;
    if (state.phase === "streaming" || state.phase === "ending") this.#ahead = state.stream.ahead;
    if ("stream" in state) {
      state.stream.close();
      this.#state = POLLING;
    }
    this.#inHand = 0;
    this.#cursor = undefined;
    this.#lost = false;
  }

  entered(cursors: readonly EnteredCursor[]): void {
    const [only, ...others] = cursors;
    this.#cursor = only !== undefined && others.length === 0 && only.lanes.length === LANES ? only : undefined;
    if (only === undefined) return;
    // In memory is more than in the row, if the row knows all that was written.
    const known = others.length === 0 && only.prev === this.#ahead.prev && only.lastWrite === this.#lastWrite;
    if (!known) this.#ahead = { prev: only.prev, ids: only.ahead };
    this.#lastWrite = only.lastWrite;
  }

  /** Messages that polling has to leave out. */
  aheadOf({ prev }: Cursor): Ahead {
    return this.#ahead.prev === prev ? this.#ahead.ids : NONE;
  }

  /** Before the cursor goes to others, under its fence: what they have to leave out. */
  async noteAhead(cursor: Cursor): Promise<void> {
    const { sql, names } = this.#options;
    this.interrupt();
    const ahead = this.aheadOf(cursor);
    if (ahead.size === 0) return;
    const token = uuidv7();
    const { text, params } = noteAhead(names, cursor, token, ahead);
    const rows = await sql.query(text, params);
    if (rows.length === 0) return;
    cursor.seq++;
    this.written(token, 0);
  }

  /** Something was written under the fence of the cursor. */
  written(token: string, counted: number): void {
    this.#lastWrite = token;
    this.#uncounted -= counted;
  }

  /** Messages that went out and are in no count of the cursor yet. */
  get uncounted(): number {
    return this.#uncounted;
  }

  // ── New messages ──────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Called between windows and before each page. "poll": the page comes by polling. A stream that is ready takes over
   * when no window is open.
   */
  async next(
    cursors: readonly Cursor[],
    limit: Limit,
    alone: boolean,
  ): Promise<StreamPage | "poll" | "nothing" | "lost"> {
    if (this.#lost) return "lost";
    const [cursor] = cursors;
    if (cursor === undefined || cursor !== this.#cursor) return "poll";
    if (alone) this.#giveWay();
    this.#advance(cursor);
    const state = this.#state;
    if (state.phase === "ending") {
      if (this.#inHand > 0) return "nothing";
      this.#ahead = state.stream.ahead;
      this.#state = POLLING;
      return "poll";
    }
    if (state.phase !== "streaming") return "poll";
    const page = state.stream.take(limit);
    if (page === undefined) return "nothing";
    if (this.#inHand++ === 0) this.#moved();
    return page;
  }

  #advance(cursor: Cursor): void {
    const state = this.#state;
    if (state.phase === "barrier") {
      if (parseSnapshot(cursor.prev).xmin >= state.after) void this.#pass(state, cursor);
    } else if (state.phase === "open") {
      state.stream.follow();
      if (cursor.cur === undefined && this.#mayStream) this.#takeOver(state);
    }
  }

  /** Polling has found nothing new: the moment to go over to a stream. */
  caughtUp(): void {
    const { clock } = this.#options;
    if (this.#state.phase !== "polling" || !this.#mayStream || clock.monotonic() < this.#nextFrom) return;
    const preparing: State = { phase: "preparing" };
    this.#state = preparing;
    void this.#prepare(preparing, this.#cursor!).catch((error: unknown) => {
      preparing.making?.close();
      if (this.#state === preparing) this.#state = POLLING;
      this.#failed(error);
    });
  }

  /** The log is idle, and a window has to be opened all the same so that the slot can be used. */
  needsWindow({ prev }: Cursor): boolean {
    const { clock } = this.#options;
    if (this.#state.phase !== "barrier" || parseSnapshot(prev).xmin >= this.#state.after) return false;
    if (clock.monotonic() - this.#windowAt < WINDOW_MS) return false;
    this.#windowAt = clock.monotonic();
    return true;
  }

  /** Windows are to end, so that a stream can take over. */
  get wantsPause(): boolean {
    return this.#state.phase === "open";
  }

  /** A page is settled, or the first messages of it and the rest never will be. */
  settled(page: StreamPage, count: number): void {
    const state = this.#state;
    if (state.phase !== "streaming" && state.phase !== "ending") return;
    state.stream.settled(page, count);
    this.#inHand = Math.max(0, this.#inHand - 1);
    this.#moved();
  }

  /** They went out, and nothing was written for it. */
  count(published: number): void {
    this.#uncounted += published;
  }

  #moved(): void {
    this.#movedAt = this.#options.clock.monotonic();
  }

  get #mayStream(): boolean {
    return this.#cursor?.crashes === 0 && this.#wanted && this.#pausedSince === undefined && !this.#left;
  }

  // ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

  async #prepare(state: State & { phase: "preparing" }, cursor: Cursor): Promise<void> {
    const { sql, names } = this.#options;
    const name = await this.#name();
    const view = await lookAtSlot(sql, names, name);
    requireStreamable(view, names, name);
    const { slot } = view;
    if (slot === undefined) return this.#make(state);
    if (slot.activePid !== undefined && !(await this.#freed(name, slot)))
      return this.#later("Another process reads the slot");
    const fits = await this.#fits(cursor, slot);
    if (this.#state !== state) return;
    if (fits) return this.#open(state, cursor, slot.confirmed!, "resume");
    if (await dropSlot(sql, name)) return this.#make(state);
    return this.#later("Another process uses the slot");
  }

  /** Whatever `prev` does not show was committed behind what the slot has confirmed. */
  async #fits(cursor: Cursor, { confirmed, lost, behind }: Slot): Promise<boolean> {
    if (confirmed === undefined || lost || behind > MOST_BEHIND) return false;
    const { sql, names } = this.#options;
    const [row] = await sql.query(`select wal_lsn::text from ${names.cursor} where id = $1::text::bigint`, [cursor.id]);
    const lsn = row?.[0];
    return lsn != null && confirmed <= parseLsn(lsn);
  }

  /** All lanes are this process's: whoever still reads is a process that has lost them. */
  async #freed(name: string, slot: Slot): Promise<boolean> {
    const { sql, names, clock } = this.#options;
    if (!(await endReader(sql, name, slot.activePid!))) return false;
    for (let tries = 0; tries < 40; tries++) {
      const now = await lookAtSlot(sql, names, name);
      if (now.slot?.activePid === undefined) return true;
      await clock.sleep(25);
    }
    return false;
  }

  /** Waits for every transaction that runs at this moment, on a connection of its own. */
  async #make(state: State & { phase: "preparing" }): Promise<void> {
    const { sql, replication } = this.#options;
    const name = await this.#name();
    const connection = await ReplicationConnection.open(replication.connect);
    state.making = connection;
    if (this.#left) return connection.close();
    const [row] = await connection.query(createSlotCommand(name, replication.failover));
    connection.close();
    // What begins from here on comes by the stream; polling has to see the end of all others.
    const [next] = await sql.query("select pg_catalog.pg_current_xact_id()::text");
    if (this.#left || this.#state !== state) return;
    this.#state = { phase: "barrier", from: parseLsn(row![1]!), after: BigInt(next![0]!) };
    this.#options.wake();
  }

  async #pass({ from }: State & { phase: "barrier" }, cursor: Cursor): Promise<void> {
    const { sql, names, fenced } = this.#options;
    const preparing: State = { phase: "preparing" };
    this.#state = preparing;
    try {
      const written = await fenced.run(async () => {
        if (cursor !== this.#cursor) return false;
        const token = uuidv7();
        const { text, params } = fitSlot(names, cursor, token, from);
        const rows = await this.#orLost(sql.query(text, params));
        if (rows.length === 0) {
          this.#lost = true;
          return false;
        }
        cursor.seq++;
        cursor.writes++;
        this.written(token, 0);
        return true;
      });
      if (written) await this.#open(preparing, cursor, from, "scan");
      else if (this.#state === preparing) this.#state = POLLING;
    } catch (error) {
      if (this.#state === preparing) this.#state = POLLING;
      this.#failed(error);
    }
  }

  async #open(state: State, cursor: Cursor, confirmed: Lsn, how: "scan" | "resume"): Promise<void> {
    const { sql, names, join, clock, fenced, replication, wants, wake } = this.#options;
    const name = await this.#name();
    const connection = await ReplicationConnection.open(replication.connect);
    try {
      const stream = new WalStream(connection, {
        sql,
        names,
        relay: join.relay,
        leaseMs: join.leaseMs,
        clock,
        fenced,
        cursor,
        ahead: this.aheadOf(cursor),
        wants,
        mostBytes: 2 * join.batch.bytes,
        uncounted: () => this.#uncounted,
        onWritten: (token, counted) => this.written(token, counted),
        onNews: wake,
        onEnd: (error, kind) => this.#ended(stream, error, kind),
      });
      await connection.start(startCommand(name, names), confirmed, stream);
      const { slot } = await lookAtSlot(sql, names, name);
      if (slot?.activePid !== connection.processId) {
        throw new WalRefusal("The replication connection and the client of the store lead to different servers");
      }
      if (!(await this.#fits(cursor, slot!))) throw new WalRefusal("The slot was made anew by another process");
      if (this.#state !== state || this.#cursor !== cursor) {
        stream.close();
        if (this.#state === state) this.#state = POLLING;
        return;
      }
      this.#state = { phase: "open", stream, how };
      this.#moved();
      wake();
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  #takeOver({ stream, how }: State & { phase: "open" }): void {
    this.#state = { phase: "streaming", stream };
    this.#since = this.#options.clock.monotonic();
    this.#moved();
    this.#reason = undefined;
    stream.deliver();
    if (this.#tellsStream) return;
    this.#tellsStream = true;
    this.#options.tell({ type: "stream_started", relay: this.#options.join.relay, from: how });
  }

  // ── Ending ────────────────────────────────────────────────────────────────────────────────────────────────────

  #ended(stream: WalStream, error: unknown, kind: "failed" | "lost" | "behind"): void {
    const state = this.#state;
    if (!("stream" in state) || state.stream !== stream || state.phase === "ending") return;
    this.#state = state.phase === "streaming" ? { phase: "ending", stream } : POLLING;
    if (kind === "lost") this.#lost = true;
    if (kind === "behind") this.#nextFrom = this.#options.clock.monotonic() + BACKOFF.baseMs;
    if (kind === "behind") this.#tellLost(error);
    else this.#failed(error);
    this.#options.wake();
  }

  /** Polling goes on from here: on purpose, so that it is no failure. */
  #giveWay(): WalStream | undefined {
    const state = this.#state;
    if (state.phase === "streaming") {
      state.stream.close();
      this.#state = { phase: "ending", stream: state.stream };
      return state.stream;
    }
    if (state.phase === "open") {
      state.stream.close();
      this.#state = POLLING;
      return state.stream;
    }
    return undefined;
  }

  #later(why: string): void {
    this.#state = POLLING;
    this.#failed(new WalRefusal(why));
  }

  #failed(error: unknown): void {
    if (this.#left) return;
    const now = this.#options.clock.monotonic();
    if (this.#tellsStream && now - this.#since > LASTED_MS) this.#attempts = 0;
    // The first time at once: most losses are of a connection.
    const waitMs = this.#attempts++ === 0 ? 0 : Math.max(BACKOFF.baseMs, backoffMs(this.#attempts, BACKOFF));
    this.#nextFrom = now + waitMs;
    this.#tellLost(error);
  }

  #tellLost(error: unknown): void {
    const reason = explainStreamError(error);
    const isTold = !this.#tellsStream && reason === this.#reason;
    this.#reason = reason;
    this.#tellsStream = false;
    if (isTold) return;
    // Where messages were thrown away by the server they come by polling all the same.
    const windowLost = /has been invalidated|can no longer get changes|requested WAL segment/.test(reason);
    this.#options.tell({ type: "stream_lost", relay: this.#options.join.relay, error: reason, windowLost });
  }

  async #orLost<T>(asked: Promise<T>): Promise<T> {
    try {
      return await asked;
    } catch (error) {
      // It may have been written.
      this.#lost = true;
      throw error;
    }
  }

  // ── Looking around ────────────────────────────────────────────────────────────────────────────────────────────

  async tend({ allStream, members, paused }: RelayView): Promise<void> {
    const { clock } = this.#options;
    const now = clock.monotonic();
    this.#wanted = allStream;
    this.#alone = members.length <= 1;
    this.#pausedSince = paused ? (this.#pausedSince ?? now) : undefined;
    const state = this.#state;
    if (state.phase === "streaming" || state.phase === "open") {
      state.stream.look();
      const isStuck = (this.#inHand > 0 || state.stream.waiting > 0) && now - this.#movedAt > STUCK_MS;
      if (!allStream) await this.#stop("Another process of this relay does not read a stream");
      else if (now - (this.#pausedSince ?? now) > STUCK_MS) await this.#stop("The relay is paused");
      else if (isStuck) await this.#stop("Nothing goes out, and the slot would keep more and more of the server's log");
    }
    if (now - this.#guardedAt < GUARD_MS) return;
    this.#guardedAt = now;
    // Another time, when the server has an answer.
    await this.#guard().catch(() => undefined);
  }

  /** Without the slot polling costs the server nothing, however long it takes. */
  async #stop(why: string): Promise<void> {
    this.#giveWay();
    this.#tellLost(new WalRefusal(why));
    this.#nextFrom = this.#options.clock.monotonic() + BACKOFF.baseMs;
    this.#options.wake();
    await this.#drop().catch(() => undefined);
  }

  /** By every process of the relay, also while none of them streams. */
  async #guard(): Promise<void> {
    const { sql, names, replication } = this.#options;
    const name = await this.#name();
    const { slot } = await lookAtSlot(sql, names, name);
    if (slot === undefined || !slot.ours || slot.retained <= replication.maxRetainedBytes) return;
    const text = `The slot kept ${Math.round(slot.retained / 1_048_576)} MB of the server's log, more than maxRetainedBytes`;
    if (this.#state.phase === "streaming" || this.#state.phase === "open") return this.#stop(text);
    if (this.#state.phase === "barrier") this.#state = POLLING;
    if (slot.activePid === undefined && (await dropSlot(sql, name))) this.#failed(new WalRefusal(text));
  }

  /** The server notices a moment later that nobody reads from the slot any more. */
  async #drop(): Promise<void> {
    const { sql, clock } = this.#options;
    const name = await this.#name();
    for (let tries = 0; tries < 40; tries++) {
      if (await dropSlot(sql, name)) return;
      await clock.sleep(25);
    }
  }

  /** Before the lanes go to others. What was delivered beyond the cursor, to be written for them. */
  close(): void {
    this.#left = true;
    this.interrupt();
    if (this.#state.phase === "preparing") this.#making = this.#state.making;
    this.#state = POLLING;
  }

  /** After the lanes were given back. The last process takes the slot with it. */
  async forget(): Promise<void> {
    const making = this.#making;
    try {
      // The server would go on with it, and keep the slot.
      if (making !== undefined) await endMaking(this.#options.sql, making.processId);
      making?.close();
      // Processes that join meanwhile make it anew.
      if (this.#alone) await this.#drop();
    } catch {
      // The server is away, and the guard of another process finds what is left.
    }
  }

  async #name(): Promise<string> {
    const { sql, names, join } = this.#options;
    this.#slot ??= slotName(await databaseName(sql), names, join.relay);
    return this.#slot;
  }
}

const NONE: Ahead = new Map();
