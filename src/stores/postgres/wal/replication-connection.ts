import type { Lsn } from "./pgoutput.ts";
import { parseStreamMessage, serverEndOf, statusUpdate, type StreamEvent } from "./pgoutput.ts";

/**
 * A client of node-postgres that was made with `replication: "database"`, and is not connected yet:
 * `() => new pg.Client({ connectionString, replication: "database" })`.
 */
export interface ReplicationClient {
  connect(): Promise<unknown>;
  end(): Promise<void>;
  query(query: object | string): unknown;
  on(event: "error" | "end", listener: (error?: Error) => void): unknown;
}

/** What of such a client the stream needs. */
interface Internals {
  readonly processID?: number | null;
  readonly connection?: {
    readonly stream: { pause(): unknown; resume(): unknown; destroy(): unknown };
    once(event: "replicationStart", listener: () => void): unknown;
    sendCopyFromChunk(chunk: Buffer): void;
  };
}

export interface StreamListener {
  event(event: StreamEvent): void;
  /** The stream is over. */
  ended(error: Error): void;
}

/** What is formatted as text on this connection has one form, whatever the database or the role is set to. */
const SETTINGS =
  "set datestyle = 'ISO, YMD'; set timezone = 'UTC'; set bytea_output = 'hex'; set statement_timeout = 0; set idle_session_timeout = 0";
const STATUS_MS = 1000;
/** After a read that brought more than this the connection rests: the server need not send row by row. */
const ROWS_BEFORE_REST = 8;
const REST_MS = 1;
const CONNECT_MS = 10_000;
/** A server that is silent for so long is asked to answer. */
const ASK_AFTER_MS = 2000;

/** A connection of the server's replication protocol: it makes slots and reads from them. */
export class ReplicationConnection {
  readonly #client: ReplicationClient & Internals;
  readonly #gone: Promise<never>;
  readonly #fail: (error?: Error) => void;
  #listener: StreamListener | undefined;
  #started = false;
  #failed: Error | undefined;
  #received: Lsn = 0n;
  #confirmed: Lsn = 0n;
  #timer: NodeJS.Timeout | undefined;
  #rest: NodeJS.Timeout | undefined;
  #held = false;
  #rows = 0;
  #countedSince = 0;
  #heardAt = 0;
  #closed = false;

  private constructor(client: ReplicationClient) {
    this.#client = client;
    const { promise, reject } = Promise.withResolvers<never>();
    this.#gone = promise;
    promise.catch(() => undefined);
    this.#fail = (error = new Error("The replication connection was closed")) => {
      if (this.#failed !== undefined) return;
      this.#failed = error;
      clearInterval(this.#timer);
      clearTimeout(this.#rest);
      reject(error);
      if (this.#started && !this.#closed) this.#listener?.ended(error);
    };
    client.on("error", this.#fail);
    client.on("end", () => this.#fail());
  }

  static async open(make: () => ReplicationClient): Promise<ReplicationConnection> {
    const client = make();
    const connection = new ReplicationConnection(client);
    try {
      await connection.#answer(client.connect(), CONNECT_MS);
      if (connection.#client.connection === undefined) {
        throw new Error("The client for replication is not one of node-postgres in JavaScript (pg.Client)");
      }
      // PostgreSQL 14 has other names for some of them.
      for (const setting of SETTINGS.split("; "))
        await connection.query(setting, CONNECT_MS).catch(connection.#unlessUnknown);
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /** The server's process behind it. */
  get processId(): number | undefined {
    return this.#client.processID ?? undefined;
  }

  /** What the server, or the way to it, has ended it with. */
  get failure(): Error | undefined {
    return this.#failed;
  }

  /** A statement or a replication command by the simple protocol. */
  async query(text: string, withinMs?: number): Promise<(string | null)[][]> {
    const asked = this.#client.query({ text, rowMode: "array", types: AS_TEXT });
    const result = (await this.#answer(asked, withinMs)) as {
      rows: (string | null)[][];
    };
    return result.rows;
  }

  /** Begins to stream; resolves when the server has agreed. */
  async start(command: string, confirmed: Lsn, listener: StreamListener): Promise<void> {
    this.#confirmed = this.#received = confirmed;
    // The first rows may come with the agreement.
    this.#listener = listener;
    const agreed = new Promise<void>((resolve) => this.#client.connection!.once("replicationStart", resolve));
    const query = copyBoth(command, (bytes) => this.#take(bytes), this.#fail);
    Promise.resolve(this.#client.query(query)).catch(this.#fail);
    await this.#answer(agreed, CONNECT_MS);
    // The agreement and the end may come together.
    if (this.#failed !== undefined) throw this.#failed;
    this.#started = true;
    this.#heardAt = performance.now();
    this.#timer = setInterval(() => this.#sendStatus(), STATUS_MS);
    this.#sendStatus();
  }

  /** How long nothing has come, though the server was asked whether it is there. */
  get silentMs(): number {
    return this.#held ? 0 : performance.now() - this.#heardAt;
  }

  get isHeld(): boolean {
    return this.#held;
  }

  /** Up to where the server's log has come, whatever of it was for this reader. */
  get received(): Lsn {
    return this.#received;
  }

  /** What the server may forget from now on. */
  confirm(lsn: Lsn): void {
    if (lsn <= this.#confirmed) return;
    this.#confirmed = lsn;
    if (this.#failed === undefined && !this.#closed) this.#sendStatus();
  }

  /** Pauses or resumes reading. Meanwhile the server is still told that the reader is alive. */
  hold(held: boolean): void {
    if (this.#held === held) return;
    this.#held = held;
    this.#heardAt = performance.now();
    if (held) this.#client.connection!.stream.pause();
    else if (this.#rest === undefined) this.#client.connection!.stream.resume();
  }

  /** Without closing messages: a server that streams would not answer them. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
    clearTimeout(this.#rest);
    this.#client.connection?.stream.destroy();
    this.#client.end().catch(() => undefined);
  }

  readonly #unlessUnknown = (error: unknown): void => {
    if ((error as { code?: unknown }).code !== "42704") throw error;
  };

  #take(bytes: Buffer): void {
    if (this.#closed) return;
    this.#heardAt = performance.now();
    const end = serverEndOf(bytes);
    if (end !== undefined && end > this.#received) this.#received = end;
    const event = parseStreamMessage(bytes);
    if (event.kind === "keepalive" && event.wantsAnswer) this.#sendStatus();
    if (event.kind === "insert") this.#countRow();
    this.#listener?.event(event);
  }

  #countRow(): void {
    const now = performance.now();
    if (now - this.#countedSince > REST_MS) {
      this.#countedSince = now;
      this.#rows = 0;
    }
    if (++this.#rows === ROWS_BEFORE_REST + 1 && this.#rest === undefined) this.#pauseBriefly();
  }

  #pauseBriefly(): void {
    const { stream } = this.#client.connection!;
    stream.pause();
    this.#rest = setTimeout(() => {
      this.#rest = undefined;
      if (!this.#held && !this.#closed) stream.resume();
    }, REST_MS);
  }

  #sendStatus(): void {
    const wantsAnswer = this.silentMs > ASK_AFTER_MS;
    const status = statusUpdate(this.#received, this.#confirmed, { now: Date.now(), wantsAnswer });
    this.#client.connection!.sendCopyFromChunk(status);
  }

  async #answer<T>(asked: T | Promise<T>, withinMs?: number): Promise<T> {
    if (withinMs === undefined) return Promise.race([Promise.resolve(asked), this.#gone]);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("The server did not answer on the replication connection")), withinMs);
    });
    return Promise.race([Promise.resolve(asked), this.#gone, late]).finally(() => clearTimeout(timer));
  }
}

const AS_TEXT = { getTypeParser: () => (value: string) => value };

/** A query of node-postgres that both sides go on sending data in. */
function copyBoth(text: string, onData: (bytes: Buffer) => void, onError: (error: Error) => void): object {
  const ignore = (): void => undefined;
  return {
    text,
    callback: ignore,
    submit: (connection: { query(text: string): void }): void => connection.query(text),
    handleCopyData: ({ chunk }: { chunk: Buffer }): void => onData(chunk),
    handleError: onError,
    handleReadyForQuery: ignore,
    handleCommandComplete: ignore,
    handleRowDescription: ignore,
    handleDataRow: ignore,
    handlePortalSuspended: ignore,
    handleEmptyQuery: ignore,
    handleCopyInResponse: ignore,
  };
}
