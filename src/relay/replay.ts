import { createHash } from "node:crypto";
import { backoffMs } from "../core/backoff.ts";
import { systemClock } from "../core/clock.ts";
import type { UnreadableLine } from "../core/archive-lines.ts";
import type { PublishResult } from "../core/contracts.ts";
import { replayHeaders, type ReplayHeaders } from "../core/replay-header.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import { Pace } from "../core/pace.ts";
import { readArchive } from "../core/read-archive.ts";
import { ABORTED, LATE, settledWithin } from "../core/settled-within.ts";
import { checkReplayOptions, type ReplayFilter, type ReplayOptions } from "./replay-options.ts";

export interface ReplayReport {
  /** Messages that match. */
  found: number;
  sent: number;
  /** The target refused these for good; at most 100 of them are listed. */
  rejected: { count: number; first: { id: string; error: string }[] };
  /** Lines of the archive that no message could be made of. */
  unreadable: number;
  /** How many there are of each stream. */
  streams: Record<string, number>;
  /** When the first and the last were enqueued. */
  firstAt: Date | null;
  lastAt: Date | null;
  /** Sent, or refused for good, up to here; null when nothing was sent. `filter.after` goes on there. */
  position: bigint | null;
  /** The signal ended it before all was sent. */
  stopped: boolean;
}

const LISTED = 100;
const BATCH = 100;
/** A publisher that was told to end its batch has this long for it. */
const GOODBYE_MS = 5000;
const BACKOFF = { baseMs: 100, maxMs: 5000 };
/**
 * Sends messages of an archive or of the log again, in order, straight to a publisher. All of them are read before the first
 * is sent: a damaged archive, or a message that is a replay itself, is refused as a whole. Each carries `replayOf`, the id
 * that it had, and `replayedAt` in its headers. Rejects when the target takes nothing for a while, and says where to go on.
 */
export async function replay(options: ReplayOptions): Promise<ReplayReport> {
  checkReplayOptions(options);
  const report = await survey(options);
  if (options.dryRun !== true && report.found > 0) await new Sending(options, report).run();
  return report;
}

async function survey(options: ReplayOptions): Promise<ReplayReport> {
  const report: ReplayReport = {
    found: 0,
    sent: 0,
    rejected: { count: 0, first: [] },
    unreadable: 0,
    streams: Object.create(null) as Record<string, number>,
    firstAt: null,
    lastAt: null,
    position: null,
    stopped: false,
  };
  let [replays, first] = [0, ""];
  for await (const message of messagesOf(options, () => report.unreadable++)) {
    options.signal?.throwIfAborted();
    report.found++;
    report.streams[message.stream] = (report.streams[message.stream] ?? 0) + 1;
    const { createdAt } = message;
    if (report.firstAt === null || createdAt < report.firstAt) report.firstAt = createdAt;
    if (report.lastAt === null || createdAt > report.lastAt) report.lastAt = createdAt;
    if (message.headers["replayOf"] !== undefined && replays++ === 0) first = message.id;
  }
  if (replays > 0 && options.includeReplays !== true) {
    const what = `${replays} of ${report.found} messages are replays themselves, the first one is ${first}`;
    throw new TxboxError("invalid_option", what, {
      field: "includeReplays",
      fix: "Replay the originals, or say includeReplays: true (--include-replays)",
    });
  }
  return report;
}

/** Messages that match. An archive that is damaged throws, at its end at the latest. */
async function* messagesOf({ from, filter = {} }: ReplayOptions, onUnreadable: () => void): AsyncGenerator<Message> {
  const matches = matcher(filter);
  let last = -1n;
  for await (const message of typeof from === "function" ? from() : archived(from)) {
    if ("unreadable" in message) onUnreadable();
    else {
      if (message.position <= last) throw outOfOrder(message);
      last = message.position;
      if (matches(message)) yield message;
    }
  }
}

async function* archived(files: readonly string[]): AsyncGenerator<Message | UnreadableLine> {
  for (const file of files) for await (const { message } of readArchive(file)) yield message;
}

function outOfOrder({ id, position }: Message): TxboxError {
  return new TxboxError("invalid_option", `Message ${id} at position ${position} comes after a later one`, {
    field: "from",
    fix: "Give the archives of one log, each once, in the order of their segments",
  });
}

function matcher(filter: ReplayFilter): (message: Message) => boolean {
  const { streams, type, key, aggregateType, aggregateId, correlationId, id, since, until, after } = filter;
  const is = (wanted: unknown, found: unknown) => wanted === undefined || wanted === found;
  return (message) =>
    (streams === undefined ? !message.stream.startsWith("inbox.") : streams.includes(message.stream)) &&
    is(type, message.type) &&
    is(key, message.key) &&
    is(aggregateType, message.aggregateType) &&
    is(aggregateId, message.aggregateId) &&
    is(correlationId, message.headers.correlationId) &&
    is(id, message.id) &&
    (since === undefined || message.createdAt >= since) &&
    (until === undefined || message.createdAt < until) &&
    (after === undefined || message.position > after);
}

/** A message that says of which it is the replay. */
interface Marked extends Message {
  readonly headers: ReplayHeaders;
}

/** The second reading: it sends the messages that the first has counted. */
class Sending {
  readonly #options: ReplayOptions;
  readonly #report: ReplayReport;
  readonly #signal: AbortSignal;
  readonly #replayedAt = new Date().toISOString();
  readonly #pace: Pace;

  constructor(options: ReplayOptions, report: ReplayReport) {
    this.#options = options;
    this.#report = report;
    this.#signal = options.signal ?? new AbortController().signal;
    this.#pace = new Pace(options.rate ?? 100, BATCH);
  }

  async run(): Promise<void> {
    const { publisher } = this.#options;
    const { most } = this.#pace;
    let batch: Marked[] = [];
    let keys = new Set<string>();
    const flush = async () => {
      await this.#send(batch);
      [batch, keys] = [[], new Set()];
    };
    for await (const message of messagesOf(this.#options, () => undefined)) {
      // A publisher that does not keep the order of a key gets one message of it at a time.
      const key = message.key === null || publisher.keepsKeyOrder ? undefined : `${message.stream}\0${message.key}`;
      if (batch.length >= most || (key !== undefined && keys.has(key))) await flush();
      if (this.#signal.aborted) break;
      if (key !== undefined) keys.add(key);
      batch.push(this.#marked(message));
    }
    if (batch.length > 0 && !this.#signal.aborted) await flush();
    this.#report.stopped = this.#signal.aborted && this.#report.sent + this.#report.rejected.count < this.#report.found;
  }

  #marked(message: Message): Marked {
    const headers = replayHeaders(message, this.#replayedAt);
    const id = this.#options.newIds === true ? derivedId(message.id) : message.id;
    return { ...message, id, headers };
  }

  async #send(batch: readonly Marked[]): Promise<void> {
    const { patienceMs = 60_000, onProgress } = this.#options;
    await this.#pace.turn(batch.length, this.#signal);
    let left = batch;
    let error: unknown;
    let progressAt = performance.now();
    for (let tries = 0; left.length > 0 && !this.#signal.aborted;) {
      const results = await this.#publish(left);
      const open = left.filter((message, i) => !this.#settle(message, results[i]));
      error =
        results.find((result) => result !== undefined && "error" in result && result.status !== "rejected") ?? error;
      if (open.length < left.length) [tries, progressAt] = [0, performance.now()];
      left = open;
      if (left.length === 0) break;
      if (performance.now() - progressAt > patienceMs) throw this.#gaveUp(left[0]!, error);
      await systemClock.sleep(backoffMs(++tries, BACKOFF), this.#signal);
    }
    const done = left.length === 0 ? batch.at(-1) : batch[batch.indexOf(left[0]!) - 1];
    if (done === undefined) return;
    this.#report.position = done.position;
    onProgress?.({ sent: this.#report.sent, found: this.#report.found, position: done.position });
  }

  /** A target that throws is out, and nothing is known of any message. */
  async #publish(messages: readonly Marked[]): Promise<readonly (PublishResult | undefined)[]> {
    const { publisher, patienceMs = 60_000 } = this.#options;
    // Not the signal of the caller: what is on its way is waited for, though not for ever.
    const late = AbortSignal.timeout(patienceMs);
    const progress = { kind: "new", mayBegin: () => !this.#signal.aborted && !late.aborted } as const;
    try {
      const results = await settledWithin(publisher.publish(messages, late, progress), patienceMs + GOODBYE_MS);
      if (results !== LATE && results !== ABORTED) return results;
    } catch (error) {
      return messages.map(() => ({ status: "unavailable", error }));
    }
    // Sending more while this is under way could change the order of messages of a key.
    throw this.#gaveUp(messages[0]!, { error: new Error(`no answer within ${patienceMs} ms`) });
  }

  /** True when nothing more is to be done for the message. */
  #settle({ headers: { replayOf } }: Marked, result: PublishResult | undefined): boolean {
    if (result?.status === "published") this.#report.sent++;
    else if (result?.status === "rejected") {
      const { rejected } = this.#report;
      if (rejected.count++ < LISTED) rejected.first.push({ id: replayOf, error: describeError(result.error) });
    } else return false;
    return true;
  }

  #gaveUp(message: Marked, result: unknown): TxboxError {
    const { sent, found } = this.#report;
    const why = (result as { error?: unknown } | undefined)?.error;
    return new TxboxError(
      "unavailable",
      `The target did not take message ${message.headers.replayOf}: ${why === undefined ? "no reason was given" : describeError(why)}`,
      {
        field: "publisher",
        fix: `${sent} of ${found} messages were sent. Mend it and go on with after: ${message.position - 1n}n (--after ${message.position - 1n})`,
        retryable: true,
        cause: why,
      },
    );
  }
}

/** A UUID (version 8) made of an id: repeating a replay gives the same one, so that inboxes drop the second. */
export function derivedId(id: string): string {
  const hex = createHash("sha256").update(`txbox replay\0${id}`).digest("hex");
  const variant = ((Number.parseInt(hex[16]!, 16) & 3) | 8).toString(16);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
