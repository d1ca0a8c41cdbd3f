import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import type { RedisArgument } from "./redis-client.ts";
import { sealEntry } from "./redis-entry.ts";
import { explainRedis, isNotTheMessage, isProtocolError, isReply } from "./redis-errors.ts";
import { ANSWER_MS, type RedisConnection, type RedisLink } from "./redis-link.ts";
import type { RedisPublisherSettings, ReplicasWanted } from "./redis-publisher-options.ts";
import { ADD } from "./redis-scripts.ts";

type Failure = Exclude<PublishResult, { status: "published" }>;

interface Entry {
  readonly index: number;
  readonly streamKey: string;
  readonly args: RedisArgument[];
  readonly bytes: number;
  /** Some value in it may be more than this server takes. */
  readonly large: boolean;
}

/** What the server takes as one value, where it says so. Without knowing, messages that broke connections are kept in mind. */
export interface ValueLimit {
  readonly bytes: number | undefined;
  readonly suspects: Set<string>;
}

const PUBLISHED: PublishResult = { status: "published" };
/** What Redis takes as one value unless it is configured otherwise, and the least it can be configured to. */
const USUAL_MAX_BYTES = 512 * 1024 * 1024;
const LEAST_MAX_BYTES = 1024 * 1024;
/** A request holds no more than this: others wait while the server works on it. */
const REQUEST = { entries: 1000, bytes: 16 * 1024 * 1024 };

/** One batch on its way: requests go one after the other, each with what is left and may go. */
export class RedisBatch {
  readonly #link: RedisLink;
  readonly #settings: RedisPublisherSettings;
  readonly #messages: readonly Message[];
  readonly #limitOf: (connection: RedisConnection) => Promise<ValueLimit>;
  readonly #results: (PublishResult | undefined)[];
  #limit: ValueLimit | undefined;
  /** Keys with a message that did not go out: nothing of theirs may follow. */
  readonly #stopped = new Set<string>();

  constructor(
    link: RedisLink,
    settings: RedisPublisherSettings,
    messages: readonly Message[],
    limit: (connection: RedisConnection) => Promise<ValueLimit>,
  ) {
    this.#link = link;
    this.#settings = settings;
    this.#messages = messages;
    this.#limitOf = limit;
    this.#results = Array.from({ length: messages.length });
  }

  async send(signal: AbortSignal): Promise<PublishResult[]> {
    let outage: unknown = new UnavailableError("Not sent: an earlier message of the key has failed");
    try {
      await untilAborted(this.#link, signal, this.#send(signal));
    } catch (error) {
      outage = explainRedis(error);
    }
    return this.#results.map((result) => result ?? { status: "unavailable", error: outage });
  }

  async #send(signal: AbortSignal): Promise<void> {
    let entries: Entry[] | undefined;
    do {
      const connection = await this.#link.connection();
      const limit = (this.#limit ??= await this.#limitOf(connection));
      entries ??= this.#seal(limit);
      if (signal.aborted) return;
      await this.#request(connection, leading(entries));
      entries = entries.filter(({ index }) => this.#results[index] === undefined && !this.#isStopped(index));
    } while (entries.length > 0);
  }

  #seal(limit: ValueLimit): Entry[] {
    const { streamKey, envelope, source } = this.#settings;
    const entries: Entry[] = [];
    for (const [index, message] of this.#messages.entries()) {
      if (this.#isStopped(index)) continue;
      try {
        const args = sealEntry(message, envelope, source, limit.bytes ?? USUAL_MAX_BYTES);
        const large = limit.bytes === undefined && args.some((arg) => arg.length * 3 > LEAST_MAX_BYTES);
        entries.push({ index, streamKey: nameOf(streamKey(message)), args, bytes: message.body.length, large });
      } catch (error) {
        this.#fail(index, { status: "rejected", error });
      }
    }
    return entries;
  }

  async #request(connection: RedisConnection, entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return;
    const { declare, trim, replicas } = this.#settings;
    const keys = [...new Set(entries.map(({ streamKey }) => streamKey))];
    const numbers = new Map(keys.map((key, i) => [key, String(i + 1)]));
    const args: RedisArgument[] = [declare ? "1" : "0", ...trim];
    for (const { streamKey, args: fields } of entries) {
      args.push(numbers.get(streamKey)!, String(fields.length));
      for (const field of fields) args.push(field);
    }
    let reply: [added: number, failure?: Buffer];
    try {
      reply = (await connection.run(ADD, keys, args)) as typeof reply;
    } catch (error) {
      if (isReply(error) && !isNotTheMessage(error.message)) return this.#refused(entries, error);
      if (entries[0]!.large && (await this.#hasBroken(entries[0]!))) return this.#refused(entries, error as Error);
      throw error;
    }
    const [added, failure] = reply;
    if (replicas !== undefined && added > 0) await replicated(connection, replicas);
    for (let i = 0; i < added; i++) this.#results[entries[i]!.index] = PUBLISHED;
    if (failure !== undefined) this.#judge(entries[added]!, failure.toString(), entries);
  }

  /** Nothing of the request was done: one message in it is to blame. */
  async #refused(entries: readonly Entry[], error: Error): Promise<void> {
    const [first] = entries;
    // The server closes that connection, if it has not done so.
    if (isProtocolError(error)) this.#link.drop();
    if (entries.length === 1) {
      return this.#fail(first!.index, { status: isProtocolError(error) ? "rejected" : "failed", error });
    }
    const half = Math.ceil(entries.length / 2);
    for (const part of [entries.slice(0, half), entries.slice(half)]) {
      const left = part.filter(({ index }) => !this.#isStopped(index));
      await this.#request(await this.#link.connection(), left);
    }
  }

  /** The server's last word may be lost with the connection: a message that breaks it twice, and alone, is to blame. */
  async #hasBroken({ index }: Entry): Promise<boolean> {
    const { id } = this.#messages[index]!;
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
    if (isNotTheMessage(failure)) throw new Error(failure);
    const error = explain(failure, streamKey);
    if (error === undefined) return this.#fail(index, { status: "failed", error: new Error(failure) });
    // As long as the stream is so, nothing for it works: ask once, not for each.
    for (const entry of entries) {
      if (entry.streamKey === streamKey && this.#results[entry.index] === undefined && !this.#isStopped(entry.index))
        this.#fail(entry.index, { status: "rejected", error });
    }
  }

  #fail(index: number, failure: Failure): void {
    this.#results[index] = failure;
    const { stream, key } = this.#messages[index]!;
    if (key !== null) this.#stopped.add(`${stream}\0${key}`);
  }

  #isStopped(index: number): boolean {
    if (this.#stopped.size === 0) return false;
    const { stream, key } = this.#messages[index]!;
    return key !== null && this.#stopped.has(`${stream}\0${key}`);
  }
}

/** As many entries as make one request, and at least one; a large one goes alone. */
function leading(entries: readonly Entry[]): readonly Entry[] {
  if (entries[0]?.large === true) return entries.slice(0, 1);
  let bytes = 0;
  const end = entries.findIndex(
    (entry, i) => i > 0 && (i >= REQUEST.entries || (bytes += entry.bytes) > REQUEST.bytes || entry.large),
  );
  return end === -1 ? entries : entries.slice(0, end);
}

function nameOf(streamKey: unknown): string {
  if (typeof streamKey === "string" && streamKey !== "") return streamKey;
  throw new PermanentError(`streamKey gave ${JSON.stringify(streamKey)} for this message`, {
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
  if (!failure.startsWith("WRONGTYPE")) return undefined;
  return new PermanentError(`The key "${streamKey}" in Redis holds something else than a stream`, {
    field: "streamKey",
    fix: "Delete or rename that key, or choose another name with streamKey",
  });
}

/** Over the connection of the write: that is what WAIT is about. */
async function replicated(connection: RedisConnection, { count, timeoutMs }: ReplicasWanted): Promise<void> {
  const reached = Number(await connection.command(["WAIT", String(count), String(timeoutMs)], timeoutMs + ANSWER_MS));
  if (reached >= count) return;
  throw new UnavailableError(`${reached} of ${count} replicas have confirmed within ${timeoutMs} ms`, {
    field: "replicas",
    fix: "Look at the replicas, or ask for fewer of them",
  });
}

/** What was sent may still be done after that: a repeat that comes late, in order in itself. */
async function untilAborted(link: RedisLink, signal: AbortSignal, running: Promise<void>): Promise<void> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => {
    aborted.reject(new UnavailableError("Given up: the lease is lost"));
    link.drop();
  };
  signal.addEventListener("abort", abort, { once: true });
  try {
    await Promise.race([running, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
