import type { Clock } from "../../core/contracts.ts";
import { answeredWithin } from "../shared/answer-deadline.ts";
import type { Limit } from "../../lanes/lane-port.ts";
import type { Database, Document, MongoSession } from "./mongodb-client.ts";
import { READ_OPTIONS } from "./mongodb-client.ts";
import { sizeOf } from "./mongodb-document.ts";
import type { ClusterTime } from "./cluster-time.ts";

/** An insert, as the stream tells of it. */
export interface Insert {
  readonly _id: { readonly _data: string };
  readonly clusterTime: ClusterTime;
  readonly fullDocument: Document;
}

export type StreamStart = { startAtOperationTime: ClusterTime } | { resumeAfter: { _data: string } };

export interface ReaderOptions {
  database: Database;
  collection: string;
  clock: Clock;
  /** Which inserts are wanted, as a condition on events. */
  match: Document;
  limit: Limit;
  deadlineMs: number;
  /** False: nothing is read ahead for now. */
  wanted: () => boolean;
  /** What of a batch is still to be handed out. */
  check: (inserts: readonly Insert[]) => Promise<readonly Insert[]>;
  onArrival: () => void;
}

/** How long the server holds a question to which it has no answer yet. A cursor that is killed is noticed only then. */
const AWAIT_MS = 500;
const FIRST_AWAIT_MS = 1;
const FIRST_ANSWER_MS = 3000;

/** Reads a change stream ahead: a batch or two in memory, and one question under way. */
export class ChangeReader {
  readonly #options: ReaderOptions;
  readonly #session: MongoSession;
  #cursor: unknown;
  #inserts: Insert[] = [];
  #bytes = 0;
  /** The end of what was received: it goes on from here when the connection breaks. */
  #received: string;
  #reading: Promise<void> | undefined;
  #checked: Promise<void> = Promise.resolve();
  #unchecked = 0;
  #full = false;
  #broken = false;
  #closed = false;
  #failure: unknown;
  #arrival = Promise.withResolvers<void>();

  private constructor(options: ReaderOptions, session: MongoSession, cursor: unknown, position: string) {
    this.#options = options;
    this.#session = session;
    this.#cursor = cursor;
    this.#received = position;
  }

  static async open(options: ReaderOptions, start: StreamStart): Promise<ChangeReader> {
    const session = options.database.startSession({ causalConsistency: false });
    const opened = await openCursor(options, session, start).catch(async (error: unknown) => {
      await session.endSession();
      throw error;
    });
    const reader = new ChangeReader(options, session, opened.id, opened.position);
    try {
      // Only the first batch tells whether the oplog still holds what comes after the start. Where there is so much to
      // read through that it takes long, a scan is sooner done.
      await reader.#ask(FIRST_AWAIT_MS, Math.min(options.deadlineMs, FIRST_ANSWER_MS));
    } catch (error) {
      reader.close();
      throw error;
    }
    reader.read();
    return reader;
  }

  /** There is something to take. */
  get ready(): boolean {
    return this.#inserts.length > 0;
  }

  /** Nothing is left to take, of all that the server has told so far. */
  get empty(): boolean {
    return this.#inserts.length === 0 && this.#unchecked === 0;
  }

  /** Where there was a whole batch, there is likely more. */
  get expectsMore(): boolean {
    return this.#unchecked > 0 || (this.#full && this.#failure === undefined);
  }

  /** Why the stream ended, though it was tried again. What was read before can still be taken. */
  get failure(): unknown {
    return this.#failure;
  }

  take({ messages, bytes }: Limit): Insert[] {
    let [count, size] = [0, 0];
    while (count < messages && size < bytes && count < this.#inserts.length) {
      size += sizeOf(this.#inserts[count++]!.fullDocument);
    }
    this.#bytes -= size;
    const taken = this.#inserts.splice(0, count);
    this.read();
    return taken;
  }

  /** Resolves when something has arrived, or after this time. */
  async arrival(ms: number): Promise<void> {
    this.read();
    if (this.#inserts.length > 0 || this.#failure !== undefined) return;
    const late = new AbortController();
    await Promise.race([this.#arrival.promise, this.#options.clock.sleep(ms, late.signal)]);
    late.abort();
  }

  /** Goes on reading, unless enough is there. */
  read(): void {
    if (this.#reading !== undefined || this.#closed || this.#failure !== undefined) return;
    const { limit, wanted } = this.#options;
    const ahead = this.#inserts.length + this.#unchecked;
    if (ahead > limit.messages || this.#bytes > limit.bytes || !wanted()) return;
    this.#reading = this.#readBatch().finally(() => {
      this.#reading = undefined;
      this.read();
    });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // The session may serve others when nothing is under way on it.
    void Promise.all([this.#kill(), this.#reading])
      .then(() => this.#session.endSession())
      .catch(() => undefined);
  }

  async #kill(): Promise<void> {
    const { database, collection } = this.#options;
    await database.db.command({ killCursors: collection, cursors: [this.#cursor] }).catch(() => undefined);
  }

  async #readBatch(): Promise<void> {
    try {
      await this.#ask(AWAIT_MS, AWAIT_MS + this.#options.deadlineMs);
      this.#broken = false;
    } catch (error) {
      await this.#mend(error);
    }
  }

  async #ask(maxTimeMS: number, deadlineMs: number): Promise<void> {
    const { database, collection, limit } = this.#options;
    const more = { getMore: this.#cursor, collection, batchSize: limit.messages, maxTimeMS };
    const answer = database.db.command(more, { ...READ_OPTIONS, session: this.#session });
    const { cursor } = (await answeredWithin(answer, deadlineMs)) as { cursor: Document };
    this.#receive(cursor["nextBatch"] as Insert[], tokenOf(cursor));
    if (cursor["id"] === 0) throw new Error("The change stream ended: the collection was dropped or renamed");
  }

  #receive(inserts: readonly Insert[], token: string): void {
    this.#received = token;
    this.#full = inserts.length * 2 >= this.#options.limit.messages;
    this.#unchecked += inserts.length;
    // Checked in turn while the next ones are read.
    this.#checked = this.#checked.then(async () => {
      try {
        if (this.#failure === undefined && inserts.length > 0) this.#add(await this.#options.check(inserts));
      } catch (error) {
        this.#fail(error);
      } finally {
        this.#unchecked -= inserts.length;
        this.#announce();
      }
    });
  }

  #add(inserts: readonly Insert[]): void {
    for (const { fullDocument } of inserts) this.#bytes += sizeOf(fullDocument);
    this.#inserts.push(...inserts);
    if (inserts.length > 0) this.#options.onArrival();
  }

  /** Opens the stream once more where it was. When it fails again right after that, it has failed. */
  async #mend(error: unknown): Promise<void> {
    if (this.#closed) return;
    if (this.#broken) return this.#fail(error);
    this.#broken = true;
    try {
      // Where only an answer was lost, the server would keep it.
      void this.#kill();
      const start = { resumeAfter: { _data: this.#received } };
      this.#cursor = (await openCursor(this.#options, this.#session, start)).id;
      if (this.#closed) await this.#kill();
    } catch (second) {
      this.#fail(second);
    }
  }

  #fail(error: unknown): void {
    this.#failure ??= error ?? new Error("The change stream failed");
    this.#announce();
  }

  #announce(): void {
    this.#arrival.resolve();
    this.#arrival = Promise.withResolvers();
  }
}

interface OpenCursor {
  id: unknown;
  position: string;
}

async function openCursor(options: ReaderOptions, session: MongoSession, start: StreamStart): Promise<OpenCursor> {
  const { database, collection, match, deadlineMs } = options;
  const command = {
    aggregate: collection,
    pipeline: [{ $changeStream: start }, { $match: match }, { $project: { clusterTime: 1, fullDocument: 1 } }],
    cursor: { batchSize: 0 },
    readConcern: { level: "majority" },
  };
  // The id of a cursor has 64 bits, and has to be sent back as it came.
  const answer = database.db.command(command, { ...READ_OPTIONS, useBigInt64: true, session });
  const { cursor } = (await answeredWithin(answer, deadlineMs)) as { cursor: Document };
  return { id: cursor["id"], position: tokenOf(cursor) };
}

function tokenOf({ postBatchResumeToken }: Document): string {
  return (postBatchResumeToken as { _data: string })._data;
}
