import { isConnectionLoss, isSerializationFailure } from "../classify-error.ts";
import { callbackOf, textOf } from "../query-arguments.ts";
import { notYours } from "../transaction-control.ts";

export interface LentConnectionOptions {
  /** The library asked for its transaction to be committed: resolves when it is. */
  onCommit(): Promise<void>;
}

const CONTROL = /^\s*(begin|start\s+transaction|commit|rollback)\s*;?\s*$/i;

/**
 * The connection of an open transaction, for a library that thinks it opens the transaction by itself. What the library
 * does before `run` to begin, and after it to end and to give back, stops here. In between, everything goes to the
 * transaction as txbox guards it, so that the library cannot end it.
 */
export class LentConnection {
  readonly connection: object;
  /** The library has begun its transaction, here. */
  begun = false;
  /** The library's user has it. */
  inUse = false;
  /** What the server said when it gave up the transaction or the session; libraries put it into words of their own. */
  lost: unknown;
  readonly #options: LentConnectionOptions;

  constructor(transaction: object, options: LentConnectionOptions) {
    this.#options = options;
    this.connection = new Proxy(transaction, { get: (target, name) => this.#get(target, name) });
  }

  #get(target: object, name: string | symbol): unknown {
    if (!this.inUse && name === "release") return () => undefined;
    // What opens a transaction of postgres.js and of PGlite.
    if (name === "begin" || name === "transaction") {
      return (...args: unknown[]) => this.#open(args.at(-1) as (connection: object) => unknown);
    }
    const value: unknown = Reflect.get(target, name);
    if (name !== "query" || typeof value !== "function") return value;
    return (...args: unknown[]) => {
      const [, command] = (!this.inUse && CONTROL.exec(textOf(args[0]))) || [];
      return command === undefined
        ? this.#query(value.bind(target) as Query, args)
        : answer(args, this.#control(command.toUpperCase()));
    };
  }

  #query(query: Query, args: unknown[]): unknown {
    const heard = args.map((one) =>
      typeof one === "function"
        ? (error: unknown, result: unknown): void => {
            this.#note(error);
            (one as Callback)(error, result);
          }
        : one,
    );
    const returned = query(...heard);
    if (returned instanceof Promise) returned.catch((error: unknown) => this.#note(error));
    return returned;
  }

  #note(error: unknown): void {
    if (error != null && (isSerializationFailure(error) || isConnectionLoss(error))) this.lost ??= error;
  }

  async #control(command: string): Promise<object> {
    if (command === "COMMIT") await this.#options.onCommit();
    else if (command !== "ROLLBACK") this.begun = true;
    return { command, rowCount: null, oid: null, rows: [], fields: [] };
  }

  async #open(run: (connection: object) => unknown): Promise<unknown> {
    if (this.begun) throw notYours("BEGIN");
    this.begun = true;
    const result = await run(this.connection);
    await this.#options.onCommit();
    return result;
  }
}

type Query = (...args: unknown[]) => unknown;
type Callback = (error: unknown, result?: unknown) => void;

/** In the form in which it was asked: by callback or as a promise. */
function answer(args: readonly unknown[], answering: Promise<object>): unknown {
  const callback = callbackOf(args);
  if (callback === undefined) return answering;
  // As node-postgres does it: what the callback throws does not become a rejection.
  answering.then(
    (result) => process.nextTick(callback, null, result),
    (error: unknown) => process.nextTick(callback, error),
  );
  return undefined;
}
