import type { Limit } from "../../../lanes/lane-port.ts";
import type { Lsn } from "./pgoutput.ts";
import type { Snapshot } from "./snapshot.ts";
import type { StreamedMessage } from "./streamed-message.ts";

/** Messages that were handed out and are settled, though the cursor does not cover them: ids by position. */
export type Ahead = ReadonlyMap<string, string>;

/** A transaction of the stream that the cursor does not cover yet. */
interface Transaction {
  readonly xid: bigint;
  /** Of its commit. */
  readonly lsn: Lsn;
  /** A snapshot of the primary has shown it. */
  visible: boolean;
  /** Rows of the log, whether they are this relay's or not. */
  rows: number;
  /** The sum of their positions. */
  positions: bigint;
  lowest: bigint;
  highest: bigint;
  /** To be handed out, in the order in which they were written. */
  readonly queue: StreamedMessage[];
  /** Handed out, in that order; of these, the first `settled` are. */
  readonly taken: { readonly ref: string; readonly id: string }[];
  settled: number;
}

/** A page of messages, and how many of each transaction it holds. */
export interface StreamPage {
  readonly messages: readonly StreamedMessage[];
  readonly of: readonly { readonly transaction: Transaction; readonly count: number }[];
}

/** What an anchor has to prove and to write. */
export interface AnchorFigures {
  /** Rows of the log that the stream brought between the two snapshots. */
  readonly decoded: number;
  /** The sum of their positions. */
  readonly positions: bigint;
  /** Of these, what was handed out, or would have been again. */
  readonly messages: number;
  readonly lowest: bigint;
  readonly highest: bigint;
  /** Where the slot may forget up to: nothing that the later snapshot does not show was committed before. */
  readonly upTo: Lsn;
}

/**
 * What the stream brought beyond the cursor, transaction by transaction in the order of their commits: what waits to be
 * seen, to be handed out and to be settled.
 */
export class DecodedTransactions {
  /** What the cursor covers. */
  #covered: Snapshot;
  /** Handed out and settled by polling or by an earlier stream. */
  #ahead: Ahead;
  readonly #wants: (message: StreamedMessage) => boolean;
  #all: Transaction[] = [];
  /** No snapshot has shown them yet. */
  #unseen: Transaction[] = [];
  /** They are in sight, and something of them waits to be handed out. */
  #ready: Transaction[] = [];
  /** Being decoded. */
  #open: { lsn: Lsn; transaction: Transaction | undefined } | undefined;
  #bytes = 0;
  #waiting = 0;
  #rows = 0;
  #late = false;

  constructor(covered: Snapshot, ahead: Ahead, wants: (message: StreamedMessage) => boolean) {
    this.#covered = covered;
    this.#ahead = ahead;
    this.#wants = wants;
  }

  // ── What the stream brings ────────────────────────────────────────────────────────────────────────────────────

  begin(lsn: Lsn): void {
    this.#open = { lsn, transaction: undefined };
  }

  /** A row of the transaction that is being decoded. */
  add(message: StreamedMessage): void {
    if (this.#open === undefined) throw new Error("A row came outside of a transaction");
    const { xid } = message;
    if (this.#covered.sees(xid)) return;
    let { transaction } = this.#open;
    if (transaction === undefined) {
      transaction = newTransaction(xid, this.#open.lsn);
      this.#open.transaction = transaction;
      this.#all.push(transaction);
      this.#unseen.push(transaction);
    }
    if (transaction.xid !== xid) {
      throw new Error(`Message ${message.ref} names another transaction than the one that wrote it`);
    }
    const { position, ref } = message;
    this.#rows++;
    transaction.rows++;
    transaction.positions += position;
    if (transaction.rows === 1 || position < transaction.lowest) transaction.lowest = position;
    if (position > transaction.highest) transaction.highest = position;
    if (this.#ahead.get(ref) === message.id) {
      transaction.taken.splice(transaction.settled++, 0, { ref, id: message.id });
    } else if (this.#wants(message)) {
      if (transaction.visible && transaction.queue.length === 0) {
        this.#ready.push(transaction);
        this.#late = true;
      }
      transaction.queue.push(message);
      this.#bytes += message.bytes;
      this.#waiting++;
    }
  }

  commit(): void {
    this.#open = undefined;
  }

  // ── Handing out ───────────────────────────────────────────────────────────────────────────────────────────────

  /** Bytes of what waits to be handed out. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Messages that wait to be handed out. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Something has come that no snapshot has shown yet. */
  get hasUnseen(): boolean {
    return this.#unseen.length > 0;
  }

  /** Something is visible and waits to be handed out. */
  get hasReady(): boolean {
    return this.#ready.length > 0;
  }

  /** How many messages may be handed out from now on. */
  show(snapshot: Snapshot): number {
    const unseen: Transaction[] = [];
    let shown = 0;
    for (const transaction of this.#unseen) {
      transaction.visible = snapshot.sees(transaction.xid);
      if (!transaction.visible) unseen.push(transaction);
      else if (transaction.queue.length > 0) this.#ready.push(transaction);
      if (transaction.visible) shown += transaction.queue.length;
    }
    this.#unseen = unseen;
    return shown;
  }

  /** Whether rows came of a transaction that was in sight already: no look tells of them. Asked once. */
  takeLate(): boolean {
    const late = this.#late;
    this.#late = false;
    return late;
  }

  /** The next messages that may go: in the order of their commits, as far as these have come into sight. */
  take({ messages: most, bytes }: Limit): StreamPage | undefined {
    const messages: StreamedMessage[] = [];
    const of: { transaction: Transaction; count: number }[] = [];
    let size = 0;
    let emptied = 0;
    for (const transaction of this.#ready) {
      const { queue, taken } = transaction;
      let count = 0;
      while (count < queue.length && messages.length < most && (size < bytes || messages.length === 0)) {
        const message = queue[count++]!;
        size += message.size;
        messages.push(message);
        taken.push({ ref: message.ref, id: message.id });
        this.#bytes -= message.bytes;
      }
      queue.splice(0, count);
      if (count > 0) of.push({ transaction, count });
      if (queue.length > 0) break;
      emptied++;
    }
    this.#ready.splice(0, emptied);
    this.#waiting -= messages.length;
    return messages.length === 0 ? undefined : { messages, of };
  }

  /** The first messages of a page are settled. Pages are, in the order in which they were taken. */
  settled({ of }: StreamPage, count: number): void {
    let left = count;
    for (const { transaction, count: its } of of) {
      const now = Math.min(left, its);
      transaction.settled += now;
      left -= now;
    }
  }

  // ── Progress ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** Nothing is known beyond the cursor. */
  get isEmpty(): boolean {
    return this.#all.length === 0;
  }

  /** Rows of the log beyond the cursor. */
  get rows(): number {
    return this.#rows;
  }

  /** What there is between the cursor and `next`, all of which was decoded before the mark. Undefined: not all is settled. */
  upTo(next: Snapshot, mark: Lsn): AnchorFigures | undefined {
    let [decoded, messages, upTo] = [0, 0, mark];
    let [positions, lowest, highest] = [0n, 0n, 0n];
    for (const one of this.#all) {
      if (!next.sees(one.xid)) {
        if (one.lsn < upTo) upTo = one.lsn;
        continue;
      }
      if (one.queue.length > 0 || one.settled < one.taken.length) return undefined;
      if (decoded === 0 || one.lowest < lowest) lowest = one.lowest;
      if (one.highest > highest) highest = one.highest;
      decoded += one.rows;
      positions += one.positions;
      messages += one.taken.length;
    }
    return { decoded, positions, messages, lowest, highest, upTo };
  }

  /** Rows of the log between the cursor and `next`, whether they are settled or not, and the sum of their positions. */
  between(next: Snapshot): Pick<AnchorFigures, "decoded" | "positions"> {
    const seen = this.#all.filter(({ xid }) => next.sees(xid));
    return {
      decoded: seen.reduce((sum, { rows }) => sum + rows, 0),
      positions: seen.reduce((sum, one) => sum + one.positions, 0n),
    };
  }

  /** The cursor covers this now. */
  cover(next: Snapshot): void {
    this.#covered = next;
    const isBeyond = ({ xid }: Transaction): boolean => !next.sees(xid);
    for (const { rows, queue } of this.#all.filter((one) => !isBeyond(one))) {
      this.#rows -= rows;
      this.#waiting -= queue.length;
      for (const message of queue) this.#bytes -= message.bytes;
    }
    this.#all = this.#all.filter(isBeyond);
    this.#unseen = this.#unseen.filter(isBeyond);
    this.#ready = this.#ready.filter(isBeyond);
    // Those were visible before the snapshot was taken.
    this.#ahead = new Map();
  }

  /** What is settled beyond the cursor: a process that reads on from the cursor has to leave it out. */
  get ahead(): Ahead {
    const ahead = new Map(this.#ahead);
    for (const { taken, settled } of this.#all) {
      for (let i = 0; i < settled; i++) ahead.set(taken[i]!.ref, taken[i]!.id);
    }
    return ahead;
  }
}

function newTransaction(xid: bigint, lsn: Lsn): Transaction {
  return {
    xid,
    lsn,
    visible: false,
    rows: 0,
    positions: 0n,
    lowest: 0n,
    highest: 0n,
    queue: [],
    taken: [],
    settled: 0,
  };
}
