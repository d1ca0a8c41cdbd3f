import type { Clock } from "../../../core/contracts.ts";
import { describeError } from "../../../core/errors.ts";
import type { Mutex } from "../../../core/mutex.ts";
import { uuidv7 } from "../../../core/uuid.ts";
import type { Limit } from "../../../lanes/lane-port.ts";
import type { SqlRunner } from "../postgres-client.ts";
import type { Cursor } from "../postgres-cursor.ts";
import type { Names } from "../postgres-names.ts";
import { isConnectionLoss, sqlState } from "../classify-error.ts";
import { auditOfLog, firstAnchor, MARK_PREFIX, nextAnchor, shownToOwner, writtenAnchor } from "./anchor-sql.ts";
import { DecodedTransactions, type Ahead, type AnchorFigures, type StreamPage } from "./decoded-transactions.ts";
import type { Lsn, StreamEvent } from "./pgoutput.ts";
import type { ReplicationConnection, StreamListener } from "./replication-connection.ts";
import { parseSnapshot, type Snapshot } from "./snapshot.ts";
import { StreamArrival } from "./stream-arrival.ts";
import { MOST_BEHIND } from "./relay-slot.ts";
import { columnPlaces, StreamedMessage, type ColumnPlaces } from "./streamed-message.ts";
import { unfitPublication, WalRefusal } from "./wal-refusal.ts";

export interface WalStreamOptions {
  readonly sql: SqlRunner;
  readonly names: Names;
  readonly relay: string;
  readonly leaseMs: number;
  readonly clock: Clock;
  /** What raises the sequence number of the cursor goes one after another. */
  readonly fenced: Mutex;
  readonly cursor: Cursor;
  /** The log's table: rows of any other are passed over, whatever the publication brings. */
  readonly log: number;
  readonly ahead: Ahead;
  readonly wants: (message: StreamedMessage) => boolean;
  /** No more than this waits in memory, and a transaction's worth of one read. */
  readonly mostBytes: number;
  /** Messages that went out and are in no count of the cursor yet. */
  readonly uncounted: () => number;
  /** An anchor was written, with this token and that many of them. */
  readonly onWritten: (token: string, counted: number) => void;
  /** There may be something to take. */
  readonly onNews: () => void;
  /**
   * The stream can be read no further. `lost`: it is unknown whether a write took effect. `taken`: another process has
   * the cursor, or the cursor was moved.
   */
  readonly onEnd: (error: unknown, kind: "failed" | "lost" | "taken" | "behind") => void;
  /** It is not known what became of a settle. */
  readonly isInDoubt: () => boolean;
}

/** An anchor is written this long after the first message beyond the last one, or after so many. */
const ANCHOR_MS = 150;
const ANCHOR_ROWS = 5000;
/** While nothing comes for this relay, anchors let the server forget what others have written. */
const IDLE_MS = 10_000;
const IDLE_BYTES = 1_048_576n;
/** And looked for at this pace while messages wait for it. */
const PROOF_MS = 2;
/** The mark of an anchor comes within this time, or the stream brings nothing any more. */
const MARK_MS = 10_000;
/** A relay that cannot keep up for so long gets its messages faster by polling. */
const BEHIND_MS = 3000;
/** A server that says nothing for so long counts as gone, although the connection reports no error. */
const SILENT_MS = 10_000;
/** After a look that let more messages than this out, the next one comes a moment later. */
const MANY = 50;
const REST_MS = 4;
/** The answer to an anchor is looked for at this pace, while the lease lasts. */
const LOOK_MS = 100;

interface Anchored {
  readonly snapshot: Snapshot;
  readonly mark: string;
  readonly sentAt: number;
  /** How often the columns had been told by then; undefined: it is not known whether the publication brought everything. */
  readonly proves: number | undefined;
}

/**
 * An open stream of a relay's log. Rows are handed out once a snapshot of the primary shows their transaction; anchors
 * move the cursor behind what is settled, so that polling could go on from there at every moment.
 */
export class WalStream implements StreamListener {
  readonly connection: ReplicationConnection;
  readonly #options: WalStreamOptions;
  readonly #decoded: DecodedTransactions;
  #places: ColumnPlaces | undefined;
  /** How often the stream has told the columns of the log. */
  #toldColumns = 0;
  /**
   * It tells them again after each change of the publication, which may have left rows out. So nothing is handed out from
   * then on until the log itself has been asked: a later message of a key would overtake what was left out.
   */
  #unproven: number | undefined;
  /** The snapshot that the cursor has. */
  #covered: Snapshot;
  /** That of the last anchor, and the mark that it wrote. */
  #next: Anchored | undefined;
  /** The mark that is on its way: it may come before the answer of the statement that wrote it. */
  #awaited: string | undefined;
  /** Where it came. */
  #mark: { readonly text: string; readonly lsn: Lsn } | undefined;
  #server = "";
  #serverEnd: Lsn = 0n;
  #anchorAtRows = ANCHOR_ROWS;
  /** How many anchors to write although no message came. */
  #idleAnchors = 0;
  #anchoredAt: number;
  #anchoredEnd: Lsn | undefined;
  readonly #arrival: StreamArrival;
  #timer: NodeJS.Timeout | undefined;
  #heldSince: number | undefined;
  #delivers = false;
  #failure: unknown;
  /** An anchor of which it is unknown whether it was written: its token, and the cursor's snapshot if it was. */
  #doubtful: { readonly token: string; readonly prev: string } | undefined;
  #gating = false;
  #anchoring = false;
  #closed = false;

  constructor(connection: ReplicationConnection, options: WalStreamOptions) {
    this.connection = connection;
    this.#options = options;
    this.#covered = parseSnapshot(options.cursor.prev);
    this.#decoded = new DecodedTransactions(this.#covered, options.ahead, options.wants);
    this.#anchoredAt = options.clock.monotonic();
    const { sql, clock, onNews } = options;
    const onError = (error: unknown): void => this.#end(error, "failed");
    const received = (): Lsn => connection.received;
    this.#arrival = new StreamArrival({ sql, clock, received, onArrived: onNews, onError });
  }

  get cursor(): Cursor {
    return this.#options.cursor;
  }

  /** Throws the error that ended it, if it has ended. */
  throwIfOver(): void {
    if (this.#failure !== undefined) throw new Error(describeError(this.#failure), { cause: this.#failure });
  }

  get doubtful(): { readonly token: string; readonly prev: string } | undefined {
    return this.#doubtful;
  }

  /** Whether the server's view of the slot is that of a stream that works. */
  isReadBy(pid: number | undefined): boolean {
    return pid !== undefined && pid === this.connection.processId;
  }

  /** The store's client leads to the server that streams, which has this name. */
  isServedBy(server: string): void {
    this.#server = server;
  }

  /** The server's log ended here when the stream was opened: polling goes on until it has come up to that. */
  catchUp(end: Lsn): void {
    this.#arrival.goTo(end);
  }

  get hasCaughtUp(): boolean {
    return this.#arrival.hasArrived;
  }

  /** The cursor that polling has moved on meanwhile. True: it has. */
  follow(): boolean {
    const { prev } = this.cursor;
    if (prev === this.#covered.text) return false;
    this.#covered = parseSnapshot(prev);
    this.#decoded.cover(this.#covered);
    this.#hold();
    return true;
  }

  /** From now on messages are taken from here, and nothing else moves the cursor. */
  deliver(): void {
    this.follow();
    this.#delivers = true;
    this.#anchoredAt = this.#options.clock.monotonic();
    this.#doubt();
    this.#afterEvents();
  }

  take(limit: Limit): StreamPage | undefined {
    if (this.#unproven !== undefined) return undefined;
    const page = this.#decoded.take(limit);
    this.#hold();
    return page;
  }

  settled(page: StreamPage, count: number): void {
    this.#decoded.settled(page, count);
  }

  /** How many messages wait to be taken. */
  get waiting(): number {
    return this.#decoded.waiting;
  }

  /** What is settled beyond the cursor, and beyond which. */
  get ahead(): { readonly prev: string; readonly ids: Ahead } {
    return { prev: this.#covered.text, ids: this.#decoded.ahead };
  }

  /** Ends it; what was taken may still be settled. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    this.connection.close();
  }

  // ── What comes ────────────────────────────────────────────────────────────────────────────────────────────────

  event(event: StreamEvent): void {
    if (this.#closed) return;
    try {
      this.#take(event);
    } catch (error) {
      this.#end(error, "failed");
      return;
    }
    this.#afterEvents();
  }

  ended(error: Error): void {
    this.#end(error, "failed");
  }

  #take(event: StreamEvent): void {
    switch (event.kind) {
      case "relation": {
        if (event.oid !== this.#options.log) return;
        this.#places = columnPlaces(event.columns);
        this.#toldColumns++;
        if (this.#delivers) this.#doubt();
        return;
      }
      case "begin":
        return this.#decoded.begin(event.lsn);
      case "insert": {
        // The publication may have been given another table, even the log of another installation.
        if (event.oid !== this.#options.log) return;
        if (this.#places === undefined) throw new WalRefusal("The stream brought a row of the log before its columns");
        this.#decoded.add(new StreamedMessage(event.tuple, this.#places));
        return;
      }
      case "commit":
        return this.#decoded.commit();
      case "mark":
        if (event.prefix === MARK_PREFIX && event.content === this.#awaited)
          this.#mark = { text: event.content, lsn: event.lsn };
        return;
      case "keepalive":
        this.#serverEnd = event.end;
        return;
      case "other":
    }
  }

  #afterEvents(): void {
    this.#hold();
    if (this.#closed) return;
    this.#arrival.note();
    if (!this.#delivers) return;
    if (this.#decoded.takeLate()) this.#options.onNews();
    if (!this.#gating && this.#decoded.hasUnseen) void this.#show();
    if (this.#decoded.isEmpty) return;
    if (this.#unproven !== undefined) {
      // Memory is not for a backlog.
      if (this.#decoded.bytes > MOST_BEHIND) this.fallBehind();
    } else if (this.#timer === undefined) this.#anchorIn(ANCHOR_MS);
    else if (this.#decoded.rows >= this.#anchorAtRows) {
      this.#anchorAtRows += ANCHOR_ROWS;
      clearTimeout(this.#timer);
      this.#anchorIn(0);
    }
  }

  #hold(): void {
    const { mostBytes, clock } = this.#options;
    // What proves that nothing was left out comes behind all that is on its way.
    const held = this.#decoded.bytes > mostBytes && this.#unproven === undefined;
    this.connection.hold(held);
    // Room for another page does not mean that the relay keeps up: only that everything was handed out does.
    if (held) this.#heldSince ??= clock.monotonic();
    else if (!this.#decoded.hasReady) this.#heldSince = undefined;
  }

  /** Asks the primary until it shows all that has come: a commit may be in the log and not in sight yet. */
  async #show(): Promise<void> {
    const { sql, names, cursor, clock, onNews } = this.#options;
    this.#gating = true;
    let since = clock.monotonic();
    try {
      while (!this.#closed && this.#decoded.hasUnseen) {
        const { text, params } = shownToOwner(names, cursor, this.#server);
        const [row] = await sql.query(text, params);
        if (row === undefined) return this.#end(takenAway(), "taken");
        const shown = this.#decoded.show(parseSnapshot(row[0]!));
        if (shown > 0) {
          onNews();
          // Commits become visible: the others do not wait for a standby yet.
          since = clock.monotonic();
        }
        // Much comes: pages may be larger then, and the primary is asked less often.
        if (shown > MANY) await clock.sleep(REST_MS);
        const waited = clock.monotonic() - since;
        // One that waits for a standby may take long.
        if (this.#decoded.hasUnseen) await clock.sleep(waited < 100 ? 1 : waited < 1000 ? 5 : 50);
      }
    } catch (error) {
      this.#end(error, "failed");
    } finally {
      this.#gating = false;
    }
  }

  // ── Anchors ───────────────────────────────────────────────────────────────────────────────────────────────────

  /** Now and then: the relay may be behind, or have been idle for long. */
  look(): void {
    if (this.#closed) return;
    const now = this.#options.clock.monotonic();
    if (!this.#delivers) {
      if (this.#arrival.isStuck(this.#serverEnd, this.connection.isHeld)) this.#end(notSent(), "failed");
      return;
    }
    if (this.#heldSince !== undefined && now - this.#heldSince > BEHIND_MS) return this.fallBehind();
    if (this.connection.silentMs > SILENT_MS) {
      this.#end(new WalRefusal("The server has sent nothing for 10 s, not even an answer"), "failed");
      return;
    }
    this.#anchoredEnd ??= this.#serverEnd;
    const wrote = this.#serverEnd - this.#anchoredEnd;
    // The server may forget what was written before the last anchor but one.
    if (now - this.#anchoredAt > IDLE_MS && wrote > IDLE_BYTES) this.#idleAnchors = 2;
    if (this.#timer !== undefined || this.#idleAnchors === 0) return;
    this.#idleAnchors--;
    this.#anchorIn(0, true);
  }

  /** Polling catches up several times as fast. */
  fallBehind(): void {
    this.#end(new WalRefusal("The relay cannot keep up with the stream, so it polls until it has caught up"), "behind");
  }

  /** The server has held back for seconds what it has on disk. */
  giveUpWaiting(): void {
    this.#end(notSent(), "behind");
  }

  #anchorIn(ms: number, idle = false): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#anchor(idle);
    }, ms);
  }

  /** From here on, rows may have been left out. */
  #doubt(): void {
    this.#unproven = this.#toldColumns;
    if (this.#anchoring) return;
    clearTimeout(this.#timer);
    this.#anchorIn(0);
  }

  async #anchor(idle: boolean): Promise<void> {
    if (this.#closed || this.#anchoring) return;
    const unproven = this.#unproven;
    if (this.#decoded.isEmpty && !idle && unproven === undefined) return;
    if (this.#options.isInDoubt()) {
      this.#anchorIn(ANCHOR_MS, idle);
      return;
    }
    const next = this.#next;
    // The snapshot has to be of after the doubt.
    if (unproven !== undefined && next?.proves !== unproven) return this.#write(undefined);
    if (next === undefined) return this.#write(undefined);
    const { clock } = this.#options;
    const { snapshot, mark } = next;
    if (this.#mark?.text !== mark) {
      if (clock.monotonic() - next.sentAt > MARK_MS) {
        this.#end(new WalRefusal("The stream did not bring the mark of an anchor within 10 s"), "failed");
      } else this.#anchorIn(unproven === undefined ? ANCHOR_MS / 10 : PROOF_MS, idle);
      return;
    }
    if (unproven !== undefined) return this.#prove(snapshot, unproven);
    const figures = this.#decoded.upTo(snapshot, this.#mark.lsn);
    if (figures === undefined) this.#anchorIn(ANCHOR_MS / 3, idle);
    else await this.#write({ figures, next: snapshot });
  }

  /** All that `snapshot` shows has come. Does the log hold just that? */
  async #prove(snapshot: Snapshot, unproven: number): Promise<void> {
    const { sql, names, cursor, onNews } = this.#options;
    this.#anchoring = true;
    const came = this.#decoded.between(snapshot);
    try {
      const { text, params } = auditOfLog(names, cursor, this.#covered, snapshot);
      const [row] = await sql.query(text, params);
      if (this.#closed) return;
      const [found, positions, publication] = row!;
      if (publication !== "ready" || found !== String(came.decoded) || positions !== String(came.positions)) {
        return this.#end(incomplete(came.decoded, Number(found), names), "failed");
      }
    } catch (error) {
      return this.#end(error, "failed");
    } finally {
      this.#anchoring = false;
    }
    if (this.#unproven !== unproven) return this.#anchorIn(0);
    this.#unproven = undefined;
    this.#anchorIn(ANCHOR_MS);
    onNews();
  }

  async #write(proof: Pick<Parameters<typeof nextAnchor>[2], "figures" | "next"> | undefined): Promise<void> {
    const { fenced } = this.#options;
    this.#anchoring = true;
    try {
      await fenced.run(() => this.#writeAnchor(proof));
    } finally {
      this.#anchoring = false;
    }
    if (this.#closed) return;
    this.#anchorAtRows = this.#decoded.rows + ANCHOR_ROWS;
    if (this.#timer !== undefined) return;
    if (this.#unproven !== undefined) this.#anchorIn(PROOF_MS);
    else if (!this.#decoded.isEmpty) this.#anchorIn(ANCHOR_MS);
  }

  async #writeAnchor(proof: Pick<Parameters<typeof nextAnchor>[2], "figures" | "next"> | undefined): Promise<void> {
    // It may have been closed while it waited for its turn.
    if (this.#closed || this.#options.isInDoubt()) return;
    const { sql, names, relay, leaseMs, clock, cursor, uncounted, onWritten } = this.#options;
    const token = uuidv7();
    const proves = this.#toldColumns;
    const lease = `${leaseMs} ms`;
    const published = proof === undefined ? 0 : uncounted();
    const { text, params } =
      proof === undefined
        ? firstAnchor(names, cursor, lease, token)
        : nextAnchor(names, cursor, { relay, lease, token, covered: this.#covered, published, ...proof });
    const sentAt = clock.monotonic();
    this.#awaited = token;
    const prev = proof === undefined ? cursor.prev : proof.next.text;
    let row: (string | null)[] | undefined;
    try {
      [row] = await sql.query(text, params);
    } catch (error) {
      // The server has refused it: then nothing was written.
      if (sqlState(error) !== undefined && !isConnectionLoss(error)) {
        this.#end(error, "failed");
        return;
      }
      this.#doubtful = { token, prev };
      const next = await this.#lookFor(token);
      if (next === undefined || next === "not written") {
        // Should it be written after all, its token tells.
        this.#end(error, next === undefined ? "lost" : "failed");
        return;
      }
      row = proof === undefined ? [next] : [...auditOf(proof.figures), next];
    }
    this.#doubtful = undefined;
    const [snapshot, publication] = row?.slice(proof === undefined ? 0 : 2) ?? [];
    if (snapshot == null) {
      const isComplete = proof === undefined || auditOf(proof.figures).every((figure, i) => figure === row?.[i]);
      if (isComplete) this.#end(takenAway(), "taken");
      else this.#end(incomplete(proof.figures.decoded, Number(row?.[0]), names), "failed");
      return;
    }
    cursor.seq++;
    cursor.writes++;
    onWritten(token, published);
    if (proof !== undefined) {
      cursor.prev = proof.next.text;
      this.#covered = proof.next;
      this.#decoded.cover(proof.next);
      this.connection.confirm(proof.figures.upTo);
    }
    this.#next = {
      snapshot: parseSnapshot(snapshot),
      mark: token,
      sentAt,
      proves: publication === "ready" ? proves : undefined,
    };
    this.#anchoredAt = sentAt;
    this.#anchoredEnd = this.#serverEnd;
    // Undefined: the answer was lost, and so is what it said of the publication.
    const isUnfit = publication !== undefined && publication !== "ready";
    if (this.#unproven !== undefined && isUnfit) {
      this.#end(unfitPublication(names, publication === null ? "missing" : "changed"), "failed");
    }
  }

  /** The snapshot of an anchor whose answer was lost; undefined: the server has no answer to that either. */
  async #lookFor(token: string): Promise<string | undefined> {
    const { sql, names, clock, cursor, leaseMs } = this.#options;
    const { text, params } = writtenAnchor(names, cursor, token);
    for (const until = clock.monotonic() + leaseMs / 2; clock.monotonic() < until; await clock.sleep(LOOK_MS)) {
      const rows = await sql.query(text, params).catch(() => undefined);
      if (rows !== undefined) return rows[0]?.[2] ?? "not written";
    }
    return undefined;
  }

  #end(error: unknown, kind: "failed" | "lost" | "taken" | "behind"): void {
    if (this.#closed) return;
    this.#failure = error;
    this.close();
    this.#options.onEnd(error, kind);
  }
}

/** By another process, or by a rewind. */
function takenAway(): Error {
  return new Error("The cursor is another process's");
}

function notSent(): WalRefusal {
  return new WalRefusal(
    "The server does not send what it has, so the relay polls. Is a standby of synchronized_standby_slots away, or the connection half open?",
  );
}

/** What the log has to hold: as many messages, and the same ones. */
function auditOf({ decoded, positions }: AnchorFigures): string[] {
  return [String(decoded), String(positions)];
}

function incomplete(decoded: number, found: number, names: Names): WalRefusal {
  const what = decoded === found ? `other messages than the log holds` : `${decoded} of ${found} messages`;
  return new WalRefusal(
    `The stream brought ${what}. Has the publication ${names.publication} been changed? Run \`txbox wal disable\`, then \`txbox wal enable\``,
  );
}
