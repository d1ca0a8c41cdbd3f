import { createHash } from "node:crypto";
import { createGzip } from "node:zlib";
import { pipeline, Readable } from "node:stream";
import { endLine, headLine, messageLine, parseEnd, type ArchiveHead } from "../../core/archive-lines.ts";
import { describeError, TxboxError } from "../../core/errors.ts";
import { ABORTED, LATE, settledWithin } from "../../core/settled-within.ts";
import { uuidv7 } from "../../core/uuid.ts";
import { valueKind } from "../../core/value-kind.ts";
import { openArchiveFile } from "./open-archive-file.ts";
import { pageSql } from "./read-log.ts";
import { epochMs, RowMessage } from "./log-message.ts";
import { IN_ORDER, PlannedTransactions } from "./planned-transactions.ts";
import type { Database, SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** A segment that is about to be archived. */
export interface ArchiveSegment extends ArchiveHead {
  /** A name for its archive that no other segment of this log has: "txbox.message_3.jsonl.gz". */
  readonly fileName: string;
}

/**
 * Where segments go before they are dropped: a directory, which gets a file for each, or a function that gives a stream for
 * each. The segment is dropped once the stream is closed, so `close` of its sink resolves when all of it is safe. False:
 * segments are dropped without an archive, also those that another process was told to archive.
 */
export type Archive =
  | { readonly directory: string }
  | ((segment: ArchiveSegment) => WritableStream<Uint8Array> | Promise<WritableStream<Uint8Array>>)
  | false;

export interface SegmentArchiveOptions {
  archive: Exclude<Archive, false>;
  database: Database;
  sql: SqlRunner;
  names: Names;
}

/** A process that dies frees the segment after this time. */
const LEASE = "interval '2 minutes'";
const RENEW_MS = 20_000;
/** A stream that takes nothing for so long has failed; closing it may take longer, such as the end of an upload. */
const WRITE_MS = 60_000;
const CLOSE_MS = 600_000;
/** A stream that is given up while this process stops has this long to clear away. */
const GOODBYE_MS = 1000;

/** Throws `invalid_option`. */
export function requireArchive(of: string, archive: unknown): void {
  if (archive === false || typeof archive === "function") return;
  if (typeof archive === "object" && archive !== null && !Array.isArray(archive)) {
    const { directory, ...rest } = archive as Record<string, unknown>;
    if (typeof directory === "string" && directory !== "" && Object.keys(rest).length === 0) return;
  }
  const got = valueKind(archive);
  throw new TxboxError("invalid_option", `${of}: archive must be a directory, a function or false, got ${got}`, {
    field: "archive",
    fix: 'Write archive: { directory: "/var/lib/txbox" }, or a function that gives a WritableStream',
  });
}

/** Writes segments as compressed lines of JSON, one process at a time, in short reads. */
export class SegmentArchive {
  readonly #options: SegmentArchiveOptions;
  readonly #transactions: PlannedTransactions;
  readonly #owner = uuidv7();

  constructor(options: SegmentArchiveOptions) {
    this.#options = options;
    this.#transactions = new PlannedTransactions(options.database, options.names);
  }

  /** From now on no process drops a segment without its archive. */
  async claimAll(): Promise<void> {
    const { sql, names } = this.#options;
    await sql.query(
      `update ${names.segment} set archive_owner = '' where archive_owner is null and archived_at is null`,
    );
  }

  /** True once the segment is archived; false while another process is at it. Throws why it could not be. */
  async write(n: string, signal: AbortSignal | undefined): Promise<boolean> {
    const { sql, names } = this.#options;
    const known = await this.#state(n);
    if (known === undefined) return false;
    if (known.archived) return true;
    if (!(await this.#lease(n, "archive_until is null or archive_until < pg_catalog.clock_timestamp()"))) return false;
    const lost = new AbortController();
    const renewal = setInterval(() => {
      // Only what is still its own: a process that slept past its lease has lost the segment.
      this.#lease(n, "archive_owner = $2::text").then(
        (kept) => kept || lost.abort(new Error("another process has taken the segment over")),
        () => undefined,
      );
    }, RENEW_MS);
    renewal.unref();
    try {
      const segment = this.#segment(n, known.createdAt);
      await this.#copy(n, segment, AbortSignal.any([lost.signal, ...(signal === undefined ? [] : [signal])]));
      const done = await sql.query(
        `update ${names.segment} set archived_at = pg_catalog.clock_timestamp()
         where n = $1::text::bigint and archive_owner = $2::text and archived_at is null returning 1`,
        [n, this.#owner],
      );
      return done.length > 0;
    } catch (error) {
      await this.#release(n).catch(() => undefined);
      if (lost.signal.aborted || signal?.aborted === true) return false;
      // A process that slept past its lease finds the segment archived by another, or dropped.
      if ((await this.#state(n))?.archived !== false) return false;
      throw error;
    } finally {
      clearInterval(renewal);
    }
  }

  async #state(n: string): Promise<{ archived: boolean; createdAt: Date } | undefined> {
    const { sql, names } = this.#options;
    const [row] = await sql.query(
      `select archived_at is not null, ${epochMs("created_at")} from ${names.segment} where n = $1::text::bigint`,
      [n],
    );
    return row && { archived: row[0] === "t", createdAt: new Date(Number(row[1])) };
  }

  /** Takes or renews the segment if `free` is true for its row; `$2` is this process. */
  async #lease(n: string, free: string): Promise<boolean> {
    const { sql, names } = this.#options;
    const rows = await sql.query(
      `update ${names.segment} set archive_owner = $2::text, archive_until = pg_catalog.clock_timestamp() + ${LEASE}
       where n = $1::text::bigint and archived_at is null and (${free}) returning 1`,
      [n, this.#owner],
    );
    return rows.length > 0;
  }

  async #release(n: string): Promise<void> {
    const { sql, names } = this.#options;
    await sql.query(
      `update ${names.segment} set archive_owner = '', archive_until = null where n = $1::text::bigint and archive_owner = $2::text`,
      [n, this.#owner],
    );
  }

  #segment(n: string, createdAt: Date): ArchiveSegment {
    const { names } = this.#options;
    // `of` quotes: "txbox"."message_3".
    const table = names.of(`message_${n}`);
    const [log, name] = [names.lockScope.slice("txbox:".length), `message_${n}`];
    const fileName = `${table
      .split('"."')
      .map((part) => encodeURIComponent(part.replaceAll('"', "")))
      .join(".")}.jsonl.gz`;
    return { log, segment: name, createdAt, fileName };
  }

  async #copy(n: string, segment: ArchiveSegment, signal: AbortSignal): Promise<void> {
    const { archive } = this.#options;
    const opening = (async () =>
      typeof archive === "function" ? archive(segment) : openArchiveFile(archive.directory, segment))();
    const stream = await soon(opening, CLOSE_MS, `The archive of ${segment.segment} could not be opened`, signal).catch(
      (error: unknown) => {
        // What is opened after all is not left open.
        opening.then((late) => ("abort" in late ? late.abort(error) : undefined)).catch(() => undefined);
        throw error;
      },
    );
    if (stream !== null && typeof stream === "object" && "sha256" in stream)
      return this.#requireSame(n, segment, stream, signal);
    if (typeof stream?.getWriter !== "function") {
      throw new TxboxError("invalid_option", `archive must give a WritableStream, got ${valueKind(stream)}`, {
        field: "archive",
        fix: "Wrap a stream of Node.js: Writable.toWeb(createWriteStream(file, { flush: true, mode: 0o600 }))",
      });
    }
    const writer = stream.getWriter();
    // Its error comes with the write that fails.
    writer.closed.catch(() => undefined);
    const zipped = createGzip();
    // What fails on the way comes out of the loop.
    pipeline(Readable.from(this.#lines(n, segment), { objectMode: false }), zipped, () => undefined);
    try {
      for await (const chunk of zipped as AsyncIterable<Uint8Array>) {
        await soon(writer.write(chunk), WRITE_MS, `The archive of ${segment.segment} took nothing`, signal);
      }
      signal.throwIfAborted();
      await soon(writer.close(), CLOSE_MS, `The archive of ${segment.segment} could not be closed`, signal);
    } catch (error) {
      await settledWithin(writer.abort(error), signal.aborted ? GOODBYE_MS : WRITE_MS).catch(() => undefined);
      throw error;
    }
  }

  /** A process died between the archive and its note in the database; or a file of another log has the name. */
  async #requireSame(
    n: string,
    segment: ArchiveSegment,
    found: { file: string; sha256: string },
    signal: AbortSignal,
  ): Promise<void> {
    let last = "";
    for await (const lines of this.#lines(n, segment)) {
      signal.throwIfAborted();
      last = lines.toString();
    }
    if (parseEnd(last.trimEnd())?.sha256 === found.sha256) return;
    throw new TxboxError("invalid_archive", `${found.file} is the archive of another log`, {
      field: "archive",
      fix: "Give each database a directory of its own, or move the file away",
    });
  }

  async *#lines(n: string, segment: ArchiveSegment): AsyncGenerator<Buffer> {
    const hash = createHash("sha256");
    const text = (lines: readonly string[]): Buffer => {
      const bytes = Buffer.from(`${lines.join("\n")}\n`);
      hash.update(bytes);
      return bytes;
    };
    yield text([headLine(segment)]);
    let messages = 0;
    for (let after = "-1"; ;) {
      const rows = await this.#page(n, after);
      const last = rows.at(-1);
      if (last === undefined) break;
      after = last.ref;
      messages += rows.length;
      yield text(rows.map(messageLine));
    }
    yield Buffer.from(`${endLine(messages, hash.digest("hex"))}\n`);
  }

  /** A statement of its own for each page: no snapshot and no lock is held for longer. */
  async #page(n: string, after: string): Promise<RowMessage[]> {
    const rows = await this.#transactions.read(IN_ORDER, (sql) =>
      sql.query(pageSql(this.#options.names.of(`message_${n}`), "position > $1::text::bigint"), [after]),
    );
    return rows.map((row) => new RowMessage(row));
  }
}

async function soon<T>(promise: Promise<T>, ms: number, what: string, signal: AbortSignal): Promise<T> {
  const ended = await settledWithin(promise, ms, signal);
  if (ended === ABORTED) throw signal.reason;
  if (ended !== LATE) return ended;
  throw new TxboxError("unavailable", `${what} within ${ms} ms`, { retryable: true });
}

/** For reports: which segment could not be archived, and why. */
export function archiveFailure(n: string, error: unknown): string {
  return `message_${n} could not be archived: ${describeError(error)}`;
}

/** A process without an archive leaves what others archive to them. */
export function notArchived(n: string): string {
  return (
    `message_${n} waits for its archive, and this process has none. ` +
    "Give createPostgresStore the archive option of the others, or archive: false to drop it without one"
  );
}
