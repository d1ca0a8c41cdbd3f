import { randomBytes } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { BatchResults, failureOf, givenUp, type Batch, type EncodedAhead } from "../../adapter/index.ts";
import { PUBLISHED } from "../../core/batch-results.ts";
import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, UnavailableError } from "../../core/errors.ts";
import { requireFitting, type EncodedEntry } from "./redis-envelope.ts";
import { shownValue } from "../../core/value-kind.ts";
import { explainRedis, isExhausted, isTooLargeForServer, isTooLargeForStream } from "./redis-errors.ts";
import type { RedisConnection, RedisLink } from "./redis-link.ts";
import type { RedisPublisherSettings, ReplicasWanted } from "./redis-publisher-options.ts";
import { addEntries, HELD, type Added, type Entry } from "./redis-request.ts";

type Failure = Exclude<PublishResult, { status: "published" }>;

/** What the server takes as one value, where it says so. Without knowing, messages that broke connections are kept in mind. */
export interface ValueLimit {
  readonly bytes: number | undefined;
  readonly suspects: Set<string>;
}

/** What Redis takes as one value unless it is configured otherwise, and the least it can be configured to. */
const USUAL_MAX_BYTES = 512 * 1024 * 1024;
const LEAST_MAX_BYTES = 1024 * 1024;
/** What is sent at once, and what of it in one request: the server works on one while the next is being written. */
const TOGETHER = { entries: 1000, bytes: 16 * 1024 * 1024 };
const REQUEST = 128;
const MAX_SEEN = 10_000;

/** What the batches of a publisher share. */
export interface RedisBatchTools {
  readonly settings: RedisPublisherSettings;
  readonly ahead: EncodedAhead<EncodedEntry>;
  readonly limitOf: (connection: RedisConnection) => Promise<ValueLimit>;
  /** Streams that have taken messages. */
  readonly seen: Set<string>;
}

/** One batch on its way, in one go as far as nothing fails; then again with what is left and may go. */
export class RedisBatch {
  readonly #batch: Batch;
  readonly #link: RedisLink;
  readonly #tools: RedisBatchTools;
  readonly #results: BatchResults;
  #limit: ValueLimit | undefined;

  constructor(batch: Batch, link: RedisLink, tools: RedisBatchTools) {
    this.#batch = batch;
    this.#link = link;
    this.#tools = tools;
    this.#results = new BatchResults(batch.messages);
  }

  async send(): Promise<PublishResult[]> {
    try {
      await untilAborted(this.#link, this.#batch.signal, this.#send());
    } catch (error) {
      return this.#results.all({ status: "unavailable", error: explainRedis(error) });
    }
    return this.#results.all();
  }

  async #send(): Promise<void> {
    let entries: Entry[] | undefined;
    do {
      const connection = await this.#link.connection();
      const limit = (this.#limit ??= await this.#tools.limitOf(connection));
      entries ??= this.#encode(limit);
      if (entries.length > 0) await this.#request(connection, leading(entries));
      entries = entries.filter(({ index }) => this.#results.isOpen(index));
    } while (entries.length > 0 && this.#batch.mayBegin());
  }

  #encode(limit: ValueLimit): Entry[] {
    const { streamKey } = this.#tools.settings;
    const { messages } = this.#batch;
    const encoded = this.#tools.ahead.of(messages);
    const entries: Entry[] = [];
    for (const [index, message] of messages.entries()) {
      if (this.#results.isHeld(index)) continue;
      try {
        const { shape, values } = requireFitting(encoded(index), limit.bytes ?? USUAL_MAX_BYTES);
        const large = limit.bytes === undefined && values.some((value) => value.length * 3 > LEAST_MAX_BYTES);
        const bytes = values.at(-1)!.length;
        entries.push({ index, streamKey: nameOf(streamKey(message)), shape, values, bytes, large });
      } catch (error) {
        this.#results.set(index, failureOf(error));
      }
    }
    return entries;
  }

  async #request(connection: RedisConnection, entries: readonly Entry[]): Promise<void> {
    const { replicas, timeoutMs } = this.#tools.settings;
    const requests = Array.from({ length: Math.ceil(entries.length / REQUEST) }, (_, i) =>
      entries.slice(i * REQUEST, (i + 1) * REQUEST),
    );
    const answers = await this.#sendAll(connection, requests);
    if (replicas !== undefined && answers.length > 0) await replicated(connection, replicas, timeoutMs);
    for (const [i, answer] of answers.entries()) {
      const request = requests[i]!;
      if (answer.status === "rejected") return this.#unanswered(request, answer.reason);
      const { added, failure } = answer.value;
      for (let n = 0; n < added; n++) {
        const { index, streamKey } = request[n]!;
        this.#results.set(index, PUBLISHED);
        this.#remember(streamKey);
      }
      // Nothing of what follows was added either.
      if (failure !== undefined) return failure === HELD ? undefined : this.#judge(request[added]!, failure, entries);
    }
  }

  async #sendAll(
    connection: RedisConnection,
    requests: readonly (readonly Entry[])[],
  ): Promise<PromiseSettledResult<Added>[]> {
    const key = `txbox:baton:${requests.length === 1 ? "none" : randomBytes(9).toString("base64url")}`;
    const { settings } = this.#tools;
    const answers: Promise<Added>[] = [];
    for (const [i, request] of requests.entries()) {
      if (i > 0) await nextTurn();
      // The requests before wait for no later one: what they have added stays.
      if (!this.#batch.mayBegin()) break;
      const after = i === 0 ? "" : String(i);
      const pass = i === requests.length - 1 ? "" : String(i + 1);
      const answer = addEntries(connection, request, settings, { key, after, pass });
      answer.catch(() => undefined);
      answers.push(answer);
    }
    this.#tools.ahead.whileWaiting();
    return Promise.allSettled(answers);
  }

  async #unanswered(request: readonly Entry[], error: unknown): Promise<void> {
    if (isTooLargeForServer(error)) return this.#refused(request, error);
    if (request[0]!.large && (await this.#hasBroken(request[0]!))) return this.#refused(request, error);
    // Any other answer to a whole request is about the server, our rights or the request itself, never about a message.
    throw error;
  }

  /** Nothing of the request was done: one message in it is too large. */
  async #refused(entries: readonly Entry[], error: unknown): Promise<void> {
    const [first] = entries;
    // The server closes that connection, if it has not done so.
    this.#link.drop();
    if (entries.length === 1) return this.#results.set(first!.index, { status: "rejected", error });
    const half = Math.ceil(entries.length / 2);
    for (const part of [entries.slice(0, half), entries.slice(half)]) {
      const left = part.filter(({ index }) => !this.#results.isHeld(index));
      if (left.length > 0) await this.#request(await this.#link.connection(), left);
    }
  }

  /**
   * The last answer of the server may be lost with the connection: a message that breaks it twice, and alone, is to
   * blame.
   */
  async #hasBroken({ index }: Entry): Promise<boolean> {
    const { id } = this.#batch.messages[index]!;
    const suspects = this.#limit?.suspects;
    if (suspects === undefined || !suspects.has(id)) {
      suspects?.add(id);
      return false;
    }
    await this.#link.command(["PING"]);
    suspects.delete(id);
    return true;
  }

  #judge({ index, streamKey }: Entry, failure: string, entries: readonly Entry[]): void {
    if (isTooLargeForStream(failure))
      return this.#results.set(index, { status: "rejected", error: new Error(failure) });
    const error = explain(failure, streamKey);
    if (error === undefined) throw new Error(failure);
    // A stream that has taken messages before is out, and its messages wait; one that never has cannot be meant.
    const result: Failure =
      isExhausted(failure) || this.#tools.seen.has(streamKey)
        ? { status: "unavailable", route: streamKey, error: new UnavailableError(error.message, { route: streamKey }) }
        : { status: "rejected", error };
    // As long as the stream is so, nothing for it works: ask once, not for each.
    for (const entry of entries) {
      if (entry.streamKey === streamKey && this.#results.isOpen(entry.index)) this.#results.set(entry.index, result);
    }
  }

  #remember(streamKey: string): void {
    const { seen } = this.#tools;
    if (seen.has(streamKey)) return;
    if (seen.size >= MAX_SEEN) seen.clear();
    seen.add(streamKey);
  }
}

/** As many entries as go together, and at least one; a large one goes alone. */
function leading(entries: readonly Entry[]): readonly Entry[] {
  if (entries[0]?.large === true) return entries.slice(0, 1);
  let bytes = 0;
  const end = entries.findIndex(
    (entry, i) => i > 0 && (i >= TOGETHER.entries || (bytes += entry.bytes) > TOGETHER.bytes || entry.large),
  );
  return end === -1 ? entries : entries.slice(0, end);
}

function nameOf(streamKey: unknown): string {
  if (typeof streamKey === "string" && streamKey !== "") return streamKey;
  throw new PermanentError(`streamKey gave ${shownValue(streamKey)} for this message`, {
    field: "streamKey",
    fix: "Let it return the name of a stream for every message",
  });
}

/** Undefined: nothing is known against the stream. */
function explain(failure: string, streamKey: string): PermanentError | undefined {
  if (failure === "MISSING") {
    return new PermanentError(`There is no stream "${streamKey}" in Redis`, {
      field: "declare",
      fix: "Create it, or let createRedisPublisher do so with declare: true",
    });
  }
  if (isExhausted(failure)) {
    return new PermanentError(`The stream "${streamKey}" in Redis takes no more entries: its ids have run out`, {
      fix: "Rename or delete it; something has added an entry with the greatest id there is",
    });
  }
  if (!failure.startsWith("WRONGTYPE")) return undefined;
  return new PermanentError(`The key "${streamKey}" in Redis holds something else than a stream`, {
    field: "streamKey",
    fix: "Delete or rename that key, or choose another name with streamKey",
  });
}

/** Over the connection of the write: that is what WAIT is about. */
async function replicated(
  connection: RedisConnection,
  { count, timeoutMs }: ReplicasWanted,
  answerMs: number,
): Promise<void> {
  const reached = Number(await connection.command(["WAIT", String(count), String(timeoutMs)], timeoutMs + answerMs));
  if (reached >= count) return;
  // A master that its replicas have left may not be the master any more: the next connection asks anew.
  connection.close();
  throw new UnavailableError(`${reached} of ${count} replicas have confirmed within ${timeoutMs} ms`, {
    field: "replicas",
    fix: "Look at the replicas, or ask for fewer of them",
  });
}

/** Requests that were sent may still take effect after that: a late repeat, in order in itself. */
async function untilAborted(link: RedisLink, signal: AbortSignal, running: Promise<void>): Promise<void> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => {
    aborted.reject(givenUp(signal));
    link.drop();
  };
  signal.addEventListener("abort", abort, { once: true });
  try {
    await Promise.race([running, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
