import { backoffMs } from "../../core/backoff.ts";
import type { Clock, JoinOptions, SourceEvent } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import { ChangeReader, type Insert } from "./change-reader.ts";
import { type ClusterTime, isAfter } from "./cluster-time.ts";
import type { Claimed, ClaimScope, ClaimSource, MessageSource } from "./claim-source.ts";
import { readyFilter, type StreamEnd } from "./claims.ts";
import type { Lease } from "./lease.ts";
import type { Database, Document } from "./mongodb-client.ts";
import { isHistoryLost } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import type { RelayView, ResumeNote } from "./mongodb-ownership.ts";
import { operationTime, readyAt, type ReadyAt } from "./snapshot-look.ts";
import { Stragglers } from "./stragglers.ts";

/** How the store follows its change stream. */
export interface StreamSettings {
  database: Database;
  collection: string;
  onEvent: (event: SourceEvent) => void;
  /** Something has arrived: relays look at once. */
  wake: () => void;
}

export interface StreamSourceOptions {
  tables: Tables;
  join: JoinOptions;
  clock: Clock;
  lease: Lease;
  claims: ClaimSource;
  stream: StreamSettings;
  deadlineMs: number;
}

/** Nothing is open. All that was committed before this time is settled, if it is known: the stream can go on from there. */
interface Closed {
  readonly phase: "closed";
  readonly settledTo: ClusterTime | undefined;
}

/** Comes before the stream: all that was ready at one moment is claimed. */
interface Scanning {
  readonly phase: "scan";
  readonly scan: ReadyAt;
}

interface OpenStream {
  readonly phase: "stream";
  readonly reader: ChangeReader;
  /** What was committed before this time is settled, or was claimed before it was opened. */
  readonly from: ClusterTime;
  readonly stragglers: Stragglers;
  /** What was taken from it and is not settled. */
  readonly inHand: Set<StreamEnd>;
  /** All that was committed before is settled. */
  settledTo: ClusterTime | undefined;
  refreshedAt: number;
}

const CLOSED: Closed = { phase: "closed", settledTo: undefined };

/** What the documents say is ready, the stream brings within this time, or a scan does. */
const OVERDUE_MS = 250;
/** While whole batches come, the next one is worth waiting for. */
const NEXT_BATCH_MS = 25;
const REFRESH_MS = 10_000;
/** Between two attempts to open a stream; messages are claimed by an index meanwhile. */
const BACKOFF = { baseMs: 1000, maxMs: 30_000 };

/**
 * New messages by a change stream. It begins with a scan: a look at one moment, claims of all that was ready then, and
 * the stream from that moment on. What both bring is told apart by the documents, which remain the truth.
 */
export class StreamSource implements MessageSource {
  readonly #options: StreamSourceOptions;
  readonly #claims: ClaimSource;
  #state: Closed | Scanning | OpenStream = CLOSED;
  /** How often documents were made ready in a way that the stream does not show, as far as this is known. */
  #rescans = 0;
  #rescanDue = false;
  /** Of notes for the relay's document. */
  #notes = 0;
  /** Streams that could not be had: when the last one was open, and when the next is tried. */
  readonly #failures = { count: 0, openedAt: Number.POSITIVE_INFINITY, nextFrom: Number.NEGATIVE_INFINITY };

  constructor(options: StreamSourceOptions) {
    this.#options = options;
    this.#claims = options.claims;
  }

  restart({ rescans }: RelayView, from: ClusterTime | undefined): void {
    this.rescan();
    this.#rescans = rescans;
    this.#state = { phase: "closed", settledTo: from };
  }

  saw({ rescans }: RelayView): void {
    this.#rescanDue ||= rescans !== this.#rescans;
    this.#rescans = rescans;
  }

  rescan(): boolean {
    if (this.#state.phase === "stream") this.#state.reader.close();
    this.#state = CLOSED;
    this.#rescanDue = false;
    return true;
  }

  close(): void {
    this.rescan();
  }

  settled(upTo: StreamEnd): void {
    const state = this.#state;
    if (state.phase !== "stream" || !state.inHand.delete(upTo)) return;
    state.settledTo = upTo.time;
    state.stragglers.passed(upTo.time);
  }

  note(idle: boolean): ResumeNote {
    const state = this.#state;
    // Once nothing is in hand, what was claimed before the stream was opened is settled.
    if (idle && state.phase === "stream") state.settledTo ??= state.from;
    const settledTo = state.phase === "scan" ? undefined : state.settledTo;
    const time = this.#rescanDue ? null : (settledTo ?? null);
    return { n: ++this.#notes, time, rescans: this.#rescans };
  }

  async ready(scope: ClaimScope): Promise<Claimed> {
    // A process that dies must leave a message to blame, and that has to be a claimed one.
    if (scope.blame !== "none" || this.#rescanDue) this.rescan();
    for (let scans = 0; ;) {
      if (scope.blame !== "none") return this.#claims.ready(scope);
      const state = this.#state;
      if (state.phase === "stream") {
        const taken = await this.#take(state, scope);
        if (taken !== "again" && taken !== "overdue") return taken;
        // What a scan does not find either, such as a write that no majority has yet, must not hold up everything else.
        if (taken === "overdue" && ++scans > 1) return undefined;
      } else if (state.phase === "scan") {
        const claimed = await this.#claimScanned(state.scan, scope);
        if (claimed !== undefined) return claimed;
      } else if (this.#options.clock.monotonic() < this.#failures.nextFrom) {
        return this.#claims.ready(scope);
      } else if (!scope.idle) {
        // Messages that came by the stream and are not settled yet would be found ready.
        return undefined;
      } else {
        await this.#begin(state.settledTo, scope);
      }
    }
  }

  async #begin(from: ClusterTime | undefined, scope: ClaimScope): Promise<void> {
    if (from !== undefined && (await this.#open(scope, from, "resume"))) return;
    this.#state = CLOSED;
    try {
      const scan = await readyAt(this.#options, readyFilter(scope.lanes, scope.streams));
      this.#state = { phase: "scan", scan };
    } catch (error) {
      this.#lost(error);
    }
  }

  /** All that was ready at the moment of the scan; undefined when it is through, and the stream is open. */
  async #claimScanned(scan: ReadyAt, scope: ClaimScope): Promise<Claimed> {
    if (scan.last !== undefined) {
      const claimed = await this.#claims.ready(scope);
      if (typeof claimed === "object") {
        if (claimed.messages.at(-1)!.position > scan.last) scan.last = undefined;
        return claimed;
      }
      if (claimed !== undefined) return claimed;
      const left = { ...readyFilter(scope.lanes, scope.streams), position: { $lte: scan.last } };
      if (await this.#isThere(left)) return undefined;
    }
    this.#state = CLOSED;
    await this.#open(scope, scan.at, "scan");
    return undefined;
  }

  async #open(scope: ClaimScope, time: ClusterTime, from: "resume" | "scan"): Promise<boolean> {
    const { join, clock, lease, stream, deadlineMs } = this.#options;
    const { relay, batch } = join;
    try {
      // Up to here others may have had these messages, and this process may have claimed them in its scan.
      const doubtful = await operationTime(this.#options);
      const reader = await ChangeReader.open(
        {
          ...stream,
          clock,
          match: insertsOf(scope),
          limit: batch,
          deadlineMs,
          wanted: () => clock.monotonic() < lease.validUntil,
          check: (inserts) => this.#stillReady(inserts, doubtful),
          onArrival: stream.wake,
        },
        { startAtOperationTime: time },
      );
      this.#state = {
        phase: "stream",
        reader,
        from: time,
        stragglers: new Stragglers(this.#options),
        inHand: new Set(),
        settledTo: from === "resume" ? time : undefined,
        refreshedAt: clock.monotonic(),
      };
    } catch (error) {
      this.#lost(error);
      return false;
    }
    this.#failures.openedAt = clock.monotonic();
    stream.onEvent({ type: "stream_started", relay, from });
    return true;
  }

  async #take(stream: OpenStream, scope: ClaimScope): Promise<Claimed | "again" | "overdue"> {
    const { reader, stragglers, inHand } = stream;
    reader.read();
    if (reader.empty && reader.failure !== undefined) {
      if (!scope.idle) return undefined;
      this.#lost(reader.failure);
      return "again";
    }
    if (!reader.ready && !scope.idle && reader.expectsMore) await reader.arrival(NEXT_BATCH_MS);
    if (!reader.ready) return scope.idle ? this.#whenEmpty(stream, scope) : undefined;
    if (await stragglers.found(readyFilter(scope.lanes, scope.streams))) this.rescan();
    if (this.#state !== stream) return "again";
    const inserts = reader.take(scope.limit);
    const last = inserts.at(-1)!;
    const end = { time: last.clusterTime };
    inHand.add(end);
    const documents = inserts.map(({ fullDocument }) => fullDocument);
    const claim = await this.#claims.streamed(documents, end);
    if (claim !== undefined) return claim;
    inHand.delete(end);
    return "again";
  }

  /** Nothing has come. When the documents say that something should have, it is waited for, and then looked for. */
  async #whenEmpty(stream: OpenStream, scope: ClaimScope): Promise<"again" | "overdue" | undefined> {
    const filter = readyFilter(scope.lanes, scope.streams);
    const { clock } = this.#options;
    const { reader } = stream;
    if (!(await this.#isThere(filter))) {
      if (clock.monotonic() - stream.refreshedAt > REFRESH_MS) await this.#refresh(stream, filter);
      return undefined;
    }
    const until = clock.monotonic() + OVERDUE_MS;
    while (!reader.ready && reader.failure === undefined && clock.monotonic() < until) {
      await reader.arrival(until - clock.monotonic());
    }
    if (reader.ready || reader.failure !== undefined) return "again";
    this.rescan();
    return "overdue";
  }

  /** While nothing comes, the stored time still moves on: a process that goes on from it need not read that stretch. */
  async #refresh(stream: OpenStream, filter: Document): Promise<void> {
    stream.refreshedAt = this.#options.clock.monotonic();
    // When this look fails, the stream goes on as before.
    const look = await readyAt(this.#options, filter).catch(() => undefined);
    if (look !== undefined && look.last === undefined) stream.settledTo = look.at;
  }

  async #stillReady(inserts: readonly Insert[], doubtful: ClusterTime): Promise<readonly Insert[]> {
    const first = inserts.findIndex(({ clusterTime }) => isAfter(clusterTime, doubtful));
    const doubts = first === -1 ? inserts : inserts.slice(0, first);
    if (doubts.length === 0) return inserts;
    const { outbox } = this.#options.tables;
    const ids = doubts.map(({ fullDocument }) => fullDocument["_id"]);
    // One that was edited in any other way is left to a scan, which reads it as it is now.
    const filter = { _id: { $in: ids }, waits: "ready", status: "new" };
    const hint = { _id: 1 };
    // As a rule all of them are, and a count takes less time than all their ids.
    if ((await outbox.count(filter, { hint })) === doubts.length) return inserts;
    const options = { projection: { _id: 1, position: 1 }, hint, batchSize: doubts.length + 1 };
    const ready = new Set((await outbox.find(filter, options)).map(nameOf));
    return inserts.filter(({ fullDocument }, i) => i >= doubts.length || ready.has(nameOf(fullDocument)));
  }

  #lost(error: unknown): void {
    const { join, clock, stream } = this.#options;
    this.rescan();
    const windowLost = isHistoryLost(error);
    stream.onEvent({ type: "stream_lost", relay: join.relay, error: describeError(error), windowLost });
    const failures = this.#failures;
    if (clock.monotonic() - failures.openedAt > BACKOFF.maxMs) failures.count = 0;
    failures.openedAt = Number.POSITIVE_INFINITY;
    // The first time at once; a stream that cannot be had at all must not take up the time.
    const waitMs = failures.count++ === 0 ? 0 : backoffMs(failures.count - 1, BACKOFF);
    failures.nextFrom = clock.monotonic() + waitMs;
  }

  async #isThere(filter: Document): Promise<boolean> {
    const { outbox } = this.#options.tables;
    // A stream tells only of what a majority has.
    const options = { projection: { _id: 1 }, hint: "txbox_ready", readConcern: { level: "majority" } };
    return (await outbox.findOne(filter, options)) !== null;
  }
}

/** With the position: an id may be given again when its document is gone, and what is no text may look the same as text. */
function nameOf({ _id, position }: Document): string {
  return `${String(_id)}\0${String(position)}`;
}

function insertsOf({ lanes, streams }: { lanes: readonly number[]; streams: readonly string[] | null }): Document {
  const fields = Object.entries(readyFilter(lanes, streams)).map(([name, is]) => [`fullDocument.${name}`, is]);
  return { operationType: "insert", ...Object.fromEntries(fields) };
}
