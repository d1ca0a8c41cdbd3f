import type { Clock, JoinOptions, SourceEvent } from "../../../core/contracts.ts";
import { LANES } from "../../../core/lane.ts";
import type { Mutex } from "../../../core/mutex.ts";
import { uuidv7 } from "../../../core/uuid.ts";
import type { Blame, Limit, SettledPage } from "../../../lanes/lane-port.ts";
import type { LogMessage } from "../log-message.ts";
import type { SqlRunner } from "../postgres-client.ts";
import type { Cursor } from "../postgres-cursor.ts";
import type { Names } from "../postgres-names.ts";
import type { EnteredCursor, RelayView } from "../postgres-ownership.ts";
import type { PageEnd } from "../settle-sql.ts";
import { endOfLog, fitSlot, writtenAnchor } from "./anchor-sql.ts";
import type { Ahead, StreamPage } from "./decoded-transactions.ts";
import type { Lsn } from "./pgoutput.ts";
import { RelaySlot, type ReplicationSettings } from "./relay-slot.ts";
import { ReplicationConnection } from "./replication-connection.ts";
import { SettledBeyond } from "./settled-beyond.ts";
import { SlotGuard, STUCK_MS, SYNCHRONOUS } from "./slot-guard.ts";
import { parseSnapshot } from "./snapshot.ts";
import { StreamTries } from "./stream-tries.ts";
import type { StreamedMessage } from "./streamed-message.ts";
import { ELSEWHERE, isOfReading, requireStreamable, WalRefusal } from "./wal-refusal.ts";
import { hasStreamingMember, lookAtSender, startCommand } from "./wal-slot.ts";
import { WalStream } from "./wal-stream.ts";

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
  /** It is not known what became of a settle. */
  readonly isInDoubt: () => boolean;
}

type State =
  /** Messages come by polling. */
  | { readonly phase: "polling" }
  /** The slot is looked at or made, or the stream is opened; polling goes on. */
  | { readonly phase: "preparing" }
  /** The slot is there: polling has to go past the transaction `after`, and then the stream brings all that follows. */
  | { readonly phase: "barrier"; readonly from: Lsn; readonly after: bigint }
  /** The stream is open; it takes over when it has come up to the server's log and polling has finished its window. */
  | { readonly phase: "open"; readonly stream: WalStream; readonly how: "scan" | "resume" }
  | { readonly phase: "streaming"; readonly stream: WalStream }
  /** The stream is over; polling takes over when what came by it is settled. */
  | { readonly phase: "ending"; readonly stream: WalStream };

const POLLING: State = { phase: "polling" };
/** An idle log gets windows of its own while a new slot waits for older transactions to end, ever less often. */
const WINDOW_MS = 50;
const MOST_WINDOW_MS = 5000;

/**
 * New messages from the server's own log. It begins with polling and goes back to polling whenever something fails. At
 * every moment polling could go on from the cursor, and leaves out then what was delivered beyond it.
 */
export class WalSource {
  readonly #options: WalSourceOptions;
  readonly #slot: RelaySlot;
  readonly #guard: SlotGuard;
  readonly #beyond: SettledBeyond;
  readonly #tries: StreamTries;
  #state: State = POLLING;
  /** With all lanes, and the only one: otherwise there is no stream. */
  #cursor: Cursor | undefined;
  #wanted = false;
  /** Pages that are handed out and not settled. */
  #inHand = 0;
  #movedAt = 0;
  #windowEveryMs = WINDOW_MS;
  #windowAt = Number.NEGATIVE_INFINITY;
  /** The cursor is another's, or it is not known where it stands. */
  #lost = false;
  #left = false;
  #preparing: Promise<void> | undefined;
  /** The server is not set up for a stream, as far as is known. */
  #notSetUp = false;
  /** The server failed to read its log from where the slot begins, and would again. */
  #unreadable = false;
  /** What is under way to drop the slot. */
  #dropping: Promise<unknown> | undefined;

  constructor(options: WalSourceOptions) {
    this.#options = options;
    const { sql, names, join, clock, tell } = options;
    this.#slot = new RelaySlot({ ...options, relay: join.relay });
    this.#guard = new SlotGuard({ sql, names, clock, slot: this.#slot });
    this.#beyond = new SettledBeyond(sql, names);
    this.#tries = new StreamTries(join.relay, clock, tell);
  }

  /** What other processes of the relay are told: whether this process could read a stream, as far as it knows. */
  get isAble(): boolean {
    return this.#tries.isAble;
  }

  /** Another process has the cursor, or it is unknown whether a write took effect. */
  get isLost(): boolean {
    return this.#lost;
  }

  /** New messages come by the stream, which wakes the relay. */
  get isStreaming(): boolean {
    return this.#state.phase === "streaming";
  }

  /** How messages come at this moment, for people. */
  get description(): string {
    if (this.isStreaming) return "stream";
    const { reason } = this.#tries;
    return reason === undefined ? "polling" : `polling: ${reason}`;
  }

  // ── Loads ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Before everything is loaded anew: what came and is not settled will be read again. */
  interrupt(): void {
    const state = this.#state;
    if (state.phase === "streaming" || state.phase === "ending") {
      this.#beyond.take(state.stream);
      this.#tries.interrupted();
      // It does not tell of messages any more.
      this.#options.wake();
    }
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
    if (only !== undefined) this.#beyond.loaded(only, others.length === 0);
    // It is for the process with all lanes to go on from there.
    if (this.#cursor === undefined && this.#state.phase === "barrier") this.#state = POLLING;
  }

  /** Messages that polling has to leave out. */
  aheadOf(cursor: Cursor): Ahead {
    return this.#beyond.of(cursor);
  }

  /** Before the cursor goes to others, under its fence: what they have to leave out. */
  async noteAhead(cursor: Cursor): Promise<void> {
    this.interrupt();
    await this.#beyond.note(cursor);
  }

  /** A settle is sent, and its answer may be lost. */
  sends(token: string, pages: readonly SettledPage<LogMessage, PageEnd>[]): void {
    const streamed = pages.filter(({ mark }) => "streamed" in mark);
    this.#beyond.sends(token, new Map(streamed.flatMap(({ messages }) => messages.map(({ ref, id }) => [ref, id]))));
  }

  /** Something was written under the fence of the cursor. */
  written(token: string, counted: number): void {
    this.#beyond.written(token, counted);
  }

  /** Messages that went out and are in no count of the cursor yet. */
  get uncounted(): number {
    return this.#beyond.uncounted;
  }

  // ── New messages ──────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Called between windows and before each page. "poll": the page comes by polling. A stream that is ready takes over
   * when no window is open.
   */
  async next(
    cursors: readonly Cursor[],
    limit: Limit,
    blame: Blame,
  ): Promise<StreamPage | "poll" | "nothing" | "lost"> {
    if (this.#lost) return "lost";
    const [cursor] = cursors;
    if (cursor === undefined || cursor !== this.#cursor) return "poll";
    if (blame !== "none") this.#giveWay();
    this.#advance(cursor);
    const state = this.#state;
    if (state.phase === "ending") {
      if (this.#inHand > 0) return "nothing";
      // An anchor may be on its way, which moves the cursor.
      await this.#options.fenced.run(() => Promise.resolve());
      if (this.#state !== state) return "nothing";
      this.#beyond.take(state.stream);
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
    if (this.#options.isInDoubt()) return;
    if (state.phase === "barrier") {
      if (parseSnapshot(cursor.prev).xmin >= state.after) void this.#pass(state, cursor);
    } else if (state.phase === "open") {
      if (state.stream.follow()) this.#moved();
      if (cursor.cur === undefined && this.#mayStream && state.stream.hasCaughtUp) this.#takeOver(state);
    }
  }

  /** Polling has found nothing new: the moment to go over to a stream. */
  caughtUp(): void {
    if (this.#state.phase !== "polling" || !this.#mayStream || !this.#tries.isDue) return;
    const preparing: State = { phase: "preparing" };
    this.#state = preparing;
    this.#preparing = this.#prepare(preparing, this.#cursor!).catch((error: unknown) => {
      if (this.#state === preparing) this.#state = POLLING;
      this.#failed(error);
    });
  }

  /** The log is idle, but a window has to be opened so that the slot can be used. */
  needsWindow({ prev }: Cursor): boolean {
    const { clock } = this.#options;
    if (this.#state.phase !== "barrier" || parseSnapshot(prev).xmin >= this.#state.after) return false;
    if (clock.monotonic() - this.#windowAt < this.#windowEveryMs) return false;
    this.#windowAt = clock.monotonic();
    this.#windowEveryMs = Math.min(MOST_WINDOW_MS, this.#windowEveryMs * 2);
    return true;
  }

  /** Windows are to end, so that a stream can take over. */
  get wantsPause(): boolean {
    return this.#state.phase === "open" && this.#state.stream.hasCaughtUp;
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
    this.#beyond.count(published);
  }

  #moved(): void {
    this.#movedAt = this.#options.clock.monotonic();
  }

  get #mayStream(): boolean {
    return this.#cursor?.crashes === 0 && this.#wanted && !this.#guard.isPaused && !this.#left;
  }

  // ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

  async #prepare(state: State, cursor: Cursor): Promise<void> {
    await this.#dropping;
    const view = await this.#slot.look();
    const { slot } = view;
    try {
      requireStreamable(view, this.#options.names, await this.#slot.name());
      this.#notSetUp = false;
    } catch (error) {
      this.#notSetUp = true;
      // It would keep the server's log for nothing.
      if (slot?.ours === true && slot.activePid === undefined) await this.#slot.drop();
      throw error;
    }
    if (slot === undefined) return this.#make(state);
    // Before anything is done to the slot: the next owner may read it already.
    const fit = await this.#slot.fit(cursor, slot);
    if (this.#state !== state) return;
    if (fit === "not ours" || cursor !== this.#cursor) return this.#poll(state);
    if (!(await this.#slot.freed(slot))) throw new WalRefusal("Another process reads the slot, and may not be ended");
    if (this.#state !== state) return;
    if (cursor !== this.#cursor) return this.#poll(state);
    const isUsable = !this.#unreadable && !this.#slot.isFarBehind(slot) && !this.#slot.keepsTooMuch(slot);
    if (fit === "fits" && isUsable) return this.#open(state, cursor, { ...view, confirmed: slot.confirmed! }, "resume");
    if (!(await this.#slot.drop())) throw new WalRefusal("Another process uses the slot");
    return this.#make(state);
  }

  /** Nothing went wrong: the lanes are another's, or are being loaded anew. */
  #poll(state: State): void {
    if (this.#state === state) this.#state = POLLING;
  }

  async #make(state: State): Promise<void> {
    if (this.#left) return;
    this.#slot.allowMaking();
    const made = await this.#slot.make();
    this.#unreadable = false;
    if (this.#left || this.#state !== state) {
      await this.#slot.drop();
      return;
    }
    this.#windowEveryMs = WINDOW_MS;
    this.#state = { phase: "barrier", ...made };
    this.#options.wake();
  }

  async #pass({ from }: State & { phase: "barrier" }, cursor: Cursor): Promise<void> {
    const { sql, names, fenced } = this.#options;
    const preparing: State = { phase: "preparing" };
    this.#state = preparing;
    try {
      // Made anew meanwhile, or on a server that has taken over, it begins elsewhere.
      const view = await this.#slot.look();
      if (view.slot?.confirmed !== from) throw new WalRefusal("The slot was made anew by another process");
      const written = await fenced.run(async () => {
        if (cursor !== this.#cursor || this.#options.isInDoubt()) return false;
        const token = uuidv7();
        const { text, params } = fitSlot(names, cursor, token, from);
        const rows = await sql.query(text, params).catch(async (error: unknown) => {
          const look = writtenAnchor(names, cursor, token);
          const found = await this.#orLost(sql.query(look.text, look.params));
          // Then polling goes on from where it is.
          if (found.length === 0) throw error;
          return found;
        });
        if (rows.length === 0) {
          this.#lost = true;
          return false;
        }
        cursor.seq++;
        cursor.writes++;
        this.written(token, 0);
        return true;
      });
      if (written) await this.#open(preparing, cursor, { ...view, confirmed: from }, "scan");
      else if (this.#state === preparing) this.#state = POLLING;
    } catch (error) {
      if (this.#state === preparing) this.#state = POLLING;
      this.#failed(error);
    }
  }

  async #open(
    state: State,
    cursor: Cursor,
    { confirmed, log }: { readonly confirmed: Lsn; readonly log: number },
    how: "scan" | "resume",
  ): Promise<void> {
    const { sql, names, join, clock, fenced, replication, wants, wake } = this.#options;
    const name = await this.#slot.name();
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
        log,
        ahead: this.aheadOf(cursor),
        wants,
        mostBytes: 2 * join.batch.bytes,
        uncounted: () => this.uncounted,
        onWritten: (token, counted) => this.written(token, counted),
        onNews: wake,
        onEnd: (error, kind) => this.#ended(stream, error, kind),
        isInDoubt: this.#options.isInDoubt,
      });
      await connection.start(startCommand(name, names), confirmed, stream);
      const view = await this.#slot.look();
      requireStreamable(view, names, name);
      const { slot } = view;
      if (slot === undefined || !stream.isReadBy(slot.activePid) || view.log !== log) throw new WalRefusal(ELSEWHERE);
      stream.isServedBy(view.server);
      const fit = await this.#slot.fit(cursor, slot);
      if (fit === "not ours" || this.#state !== state || this.#cursor !== cursor) {
        stream.close();
        return this.#poll(state);
      }
      if (fit === "unfit") throw new WalRefusal("The slot was made anew by another process");
      const sender = await lookAtSender(sql, connection.processId, connection.received);
      if (sender?.isSynchronous === true) throw new WalRefusal(SYNCHRONOUS);
      const end = await endOfLog(sql);
      stream.throwIfOver();
      if (this.#state !== state || this.#cursor !== cursor) {
        stream.close();
        return this.#poll(state);
      }
      this.#state = { phase: "open", stream, how };
      stream.catchUp(end);
      this.#moved();
      wake();
    } catch (error) {
      this.#unreadable ||= isOfReading(connection.failure);
      connection.close();
      throw error;
    }
  }

  #takeOver({ stream, how }: State & { phase: "open" }): void {
    this.#state = { phase: "streaming", stream };
    this.#moved();
    stream.deliver();
    this.#tries.started(how);
  }

  // ── Ending ────────────────────────────────────────────────────────────────────────────────────────────────────

  #ended(stream: WalStream, error: unknown, kind: "failed" | "lost" | "taken" | "behind"): void {
    const state = this.#state;
    if (!("stream" in state) || state.stream !== stream || state.phase === "ending") return;
    this.#state = state.phase === "streaming" ? { phase: "ending", stream } : POLLING;
    if (kind === "lost" || kind === "taken") this.#lost = true;
    this.#unreadable ||= isOfReading(stream.connection.failure);
    if (kind === "behind") this.#tries.stopped(error);
    // Everything is loaded anew, and if the cursor is still this process's, it streams again.
    else if (kind !== "taken") this.#failed(error);
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

  #failed(error: unknown): void {
    if (this.#left) return;
    this.#tries.failed(error);
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

  async tend({ allStream, paused }: RelayView): Promise<void> {
    const { clock } = this.#options;
    const now = clock.monotonic();
    this.#wanted = allStream;
    this.#guard.paused(paused);
    this.#tries.look();
    const state = this.#state;
    if (state.phase === "streaming" || state.phase === "open") {
      state.stream.look();
      if (this.#state !== state) return;
      // A message that comes after long has its own time.
      if (this.#inHand === 0 && state.stream.waiting === 0) this.#moved();
      const isStuck = now - this.#movedAt > STUCK_MS;
      if (!allStream) this.#stop("Another process of this relay does not read a stream");
      else if (this.#guard.isPausedForLong) this.#stop("The relay is paused");
      else if (isStuck) this.#stop("Nothing goes out, and the slot would keep more and more of the server's log");
    }
    // While the target is out, what came by the stream stays in hand.
    const polls = this.#state.phase === "polling" || this.#state.phase === "ending";
    this.#guard.polls(polls && this.#cursor !== undefined);
    // Another time, when the server has an answer.
    if (this.#guard.isDue) await this.#look().catch(() => undefined);
  }

  /** Without the slot polling costs the server nothing, however long it takes. */
  #stop(why: string): void {
    this.#giveWay();
    this.#tries.stopped(new WalRefusal(why));
    this.#options.wake();
    this.#dropSoon();
  }

  /** Beside the renewal of the lease. What is left of it, because the server was not done with the slot, the guard finds. */
  #dropSoon(): void {
    this.#dropping ??= this.#slot
      .drop()
      .catch(() => undefined)
      .finally(() => (this.#dropping = undefined));
  }

  /** By every process of the relay, also while none of them streams. */
  async #look(): Promise<void> {
    const state = this.#state;
    const stream = state.phase === "streaming" || state.phase === "open" ? state.stream : undefined;
    const finding = await this.#guard.look(stream, this.#wanted);
    // The answer is of another stream, or of before this one.
    if (this.#state !== state) return;
    if (finding.isSetUp && this.#notSetUp) {
      this.#notSetUp = false;
      this.#tries.mended();
    }
    const { verdict } = finding;
    if (verdict === "not read" && stream !== undefined) {
      stream.close();
      this.#ended(stream, new WalRefusal("The slot is no longer read by this process"), "failed");
    } else if (verdict === "behind") stream?.fallBehind();
    else if (verdict === "not sent") stream?.giveUpWaiting();
    else if (verdict === "unused") this.#dropUnused();
    else if (typeof verdict !== "string" && "stop" in verdict) this.#stop(verdict.stop);
    else if (typeof verdict !== "string") await this.#giveUpSlot(verdict.giveUp, finding.isRead);
  }

  /** The slot has no reader, and keeps the server's log for one that does not come. */
  #dropUnused(): void {
    const { phase } = this.#state;
    // A paused relay does not go on from "ending".
    if (phase !== "polling" && phase !== "barrier" && phase !== "ending") return;
    if (phase === "barrier") this.#state = POLLING;
    this.#dropSoon();
  }

  async #giveUpSlot(why: string, isRead: boolean): Promise<void> {
    const { phase } = this.#state;
    if (phase === "streaming" || phase === "open") return this.#stop(why);
    // It waits for a transaction that does not end.
    if (phase === "preparing") return this.#slot.refuseMaking(why);
    if (phase === "barrier") this.#state = POLLING;
    if (!isRead && (await this.#slot.drop())) this.#failed(new WalRefusal(why));
  }

  /** Before the lanes go to others. */
  close(): void {
    this.#left = true;
    this.interrupt();
    this.#state = POLLING;
  }

  /** The relay was dropped, so its slot is not needed any more. */
  relayDropped(): void {
    if (this.#left) return;
    this.close();
    void this.forget();
  }

  /** After the lanes were given back. The last process that streams takes the slot with it; one that joins makes it anew. */
  async forget(): Promise<void> {
    const { sql, names, join } = this.#options;
    try {
      await this.#slot.refuseMaking("The relay was stopped");
      await this.#preparing;
      if (!(await hasStreamingMember(sql, names, join.relay))) await this.#slot.drop();
    } catch {
      // The server is away. Maintenance and other processes find what is left.
    }
  }
}
