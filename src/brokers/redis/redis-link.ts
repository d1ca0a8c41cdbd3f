import { ABORTED, LATE, settledWithin } from "../../adapter/index.ts";
import { UnavailableError } from "../../core/errors.ts";
import { plainConnection, type PlainConnection, type RedisArgument } from "./plain-connection.ts";
import type { RedisClient } from "./redis-client.ts";
import { explainRedis, isReply, needsOtherServer } from "./redis-errors.ts";
import type { Script } from "./redis-scripts.ts";

/** How long Redis may take to answer a command that does not block, unless it is told otherwise. */
const ANSWER_MS = 10_000;

/** One connection at a time, opened when it is needed. A broken one is thrown away with all that was sent over it. */
export class RedisLink {
  readonly #client: RedisClient;
  readonly #answerMs: number;
  #current: RedisConnection | undefined;
  #closed = false;

  constructor(client: RedisClient, answerMs: number = ANSWER_MS) {
    this.#client = client;
    this.#answerMs = answerMs;
  }

  async command(args: readonly RedisArgument[], answerMs?: number): Promise<unknown> {
    return (await this.connection()).command(args, answerMs);
  }

  async run(script: Script, keys: readonly string[], args: readonly RedisArgument[]): Promise<unknown> {
    return (await this.connection()).run(script, keys, args);
  }

  /** All of them or none, with nothing of others between; what EXEC answers. */
  async transaction(commands: readonly (readonly RedisArgument[])[]): Promise<unknown[] | null> {
    return (await this.connection()).transaction(commands);
  }

  /** Gives up what is under way; the next command opens another connection. */
  drop(): void {
    const current = this.#current;
    this.#current = undefined;
    current?.close();
  }

  close(): void {
    this.#closed = true;
    this.drop();
  }

  /** For commands that have to go over one connection. */
  async connection(): Promise<RedisConnection> {
    if (this.#closed) throw new UnavailableError("The connection to Redis was closed");
    const current = (this.#current ??= new RedisConnection(this.#client, this.#answerMs));
    try {
      await current.ready;
      if (current.open) return current;
    } catch (error) {
      if (this.#current === current) this.#current = undefined;
      throw explainRedis(error);
    }
    if (this.#current === current) this.#current = undefined;
    return this.connection();
  }
}

export class RedisConnection {
  readonly ready: Promise<void>;
  readonly #plain: PlainConnection;
  readonly #answerMs: number;
  readonly #closed = new AbortController();

  constructor(client: RedisClient, answerMs: number) {
    this.#answerMs = answerMs;
    this.#plain = plainConnection(client);
    this.#plain.on("end", () => this.close());
    this.#plain.on("close", () => this.close());
    this.ready = this.#connect();
    this.ready.catch(() => undefined);
  }

  async #connect(): Promise<void> {
    // The event knows more than the promise: ioredis rejects with "Connection is closed" whatever happened.
    let reason: Error | undefined;
    this.#plain.on("error", (error) => {
      reason ??= error;
      this.close();
    });
    try {
      // Clients wait without end for a server that takes the connection and says nothing.
      await this.#answer(this.#plain.connect(), this.#answerMs);
    } catch (error) {
      this.close();
      throw reason ?? error;
    }
  }

  get open(): boolean {
    return !this.#closed.signal.aborted;
  }

  /** Rejects with the server's own error when it answered, with an UnavailableError otherwise. */
  async command(args: readonly RedisArgument[], answerMs: number = this.#answerMs): Promise<unknown> {
    try {
      return await this.#answer(this.#plain.send(args), answerMs);
    } catch (error) {
      if (error instanceof Error && needsOtherServer(error.message)) this.close();
      throw error;
    }
  }

  /** Null when a key that is watched was changed. Written at once, so that no other command comes between. */
  async transaction(commands: readonly (readonly RedisArgument[])[]): Promise<unknown[] | null> {
    const answers = [["MULTI"], ...commands, ["EXEC"]].map((args) => this.command(args));
    const replies = (await Promise.all(answers)).at(-1) as unknown[] | null;
    for (const reply of replies ?? []) if (reply instanceof Error) throw reply;
    return replies;
  }

  async run(script: Script, keys: readonly string[], args: readonly RedisArgument[]): Promise<unknown> {
    const count = String(keys.length);
    try {
      return await this.command(["EVALSHA", script.sha, count, ...keys, ...args]);
    } catch (error) {
      if (!isReply(error, "NOSCRIPT")) throw error;
      return this.command(["EVAL", script.source, count, ...keys, ...args]);
    }
  }

  async #answer(asking: Promise<unknown>, answerMs: number): Promise<unknown> {
    const reply = await settledWithin(asking, answerMs, this.#closed.signal);
    if (reply === ABORTED) throw new UnavailableError("The connection to Redis was lost");
    if (reply !== LATE) return reply;
    this.close();
    throw new UnavailableError(`Redis did not answer within ${answerMs} ms`);
  }

  close(): void {
    if (!this.open) return;
    this.#closed.abort();
    this.#plain.close();
  }
}
