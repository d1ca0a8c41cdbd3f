import { TxboxError } from "../../core/errors.ts";
import { textOf } from "./query-arguments.ts";
import { refusedQuery } from "./refused-query.ts";
import { leftBehind, notYours, refuseTransactionControl } from "./transaction-control.ts";

export interface GuardedTransaction<Tx> {
  /** The transaction as its user sees it. */
  readonly tx: Tx;
  /** From now on every call through `tx` is refused. */
  close(): void;
  /** The text that was sent last, by node-postgres. */
  lastText: string | undefined;
  /** Asks the server to stop what `tx` is waiting for, by postgres.js; settles when it has been asked. */
  cancel(): Promise<unknown>;
}

/**
 * A transaction that ends for its user when it ends for the database. The connection goes back to a pool then, and a
 * late query, of a handler that timed out or forgot an await, would land in another user's transaction. Its user may
 * not end it either. `onUse` is called before anything goes through.
 */
export function guardTransaction<Tx extends object>(transaction: Tx, onUse?: () => void): GuardedTransaction<Tx> {
  let over = false;
  const sent = new Set<PostgresJsQuery>();
  const check = (): void => {
    if (over) throw transactionIsOver();
  };

  const checkOf = (text: string) => (): void => {
    check();
    refuseTransactionControl(text);
  };

  function wrap<T extends object>(target: T): T {
    return new Proxy(target, {
      // postgres.js: tx`select …`
      apply(callable, self, args) {
        check();
        // Anything but a template, such as tx("end"), is a name or a value for one.
        const text = Array.isArray(args[0]) ? textOf(args[0]) : "";
        return lazily(Reflect.apply(callable as (...args: unknown[]) => unknown, self, args), checkOf(text), sent);
      },
      get(object, name) {
        const value: unknown = Reflect.get(object, name);
        if (typeof value !== "function") return value;
        const call = (args: unknown[]): unknown => Reflect.apply(value, object, args);
        switch (name) {
          case "query":
          case "exec":
          case "sql":
            // Not async: node-postgres hands a cursor straight back.
            return (...args: unknown[]) => {
              try {
                check();
                const text = textOf(args[0]);
                refuseTransactionControl(text);
                guarded.lastText = text;
                onUse?.();
              } catch (error) {
                return refusedQuery(args, error);
              }
              return call(args);
            };
          case "getTransactionStatus":
            return () => (onUse === undefined ? call([]) : (onUse(), "T"));
          case "unsafe":
          case "file":
            return (...args: unknown[]) => {
              check();
              return lazily(call(args), name === "unsafe" ? checkOf(textOf(args[0])) : check, sent);
            };
          // PGlite's rollback, node-postgres's release and end, postgres.js's prepare.
          case "rollback":
          case "release":
          case "end":
          case "prepare":
            return () => {
              throw notYours(`${name}()`);
            };
          case "listen":
          case "unlisten":
            return () => {
              throw leftBehind(`${name}()`, "Listen on a connection of your own");
            };
          case "savepoint":
            return (...args: unknown[]) => (check(), call(args.map(wrapCallback)));
          default:
            return value;
        }
      },
    });
  }

  /** Inside a savepoint postgres.js gives another handle on the same connection. */
  function wrapCallback(argument: unknown): unknown {
    if (typeof argument !== "function") return argument;
    return (inner: object) => (argument as (tx: object) => unknown)(wrap(inner));
  }

  const guarded: GuardedTransaction<Tx> = {
    tx: wrap(transaction),
    close: () => void (over = true),
    lastText: undefined,
    cancel: () => Promise.allSettled([...sent].map(async (query) => query.canceller?.(query))),
  };
  return guarded;
}

/** The handler was given up and may still be in a query. */
export function isGivenUp(error: unknown): boolean {
  return error instanceof TxboxError && error.code === "handler_timeout";
}

/** A query of postgres.js is sent when it is awaited, which may be long after it was made. */
function lazily(result: unknown, check: () => void, sent: Set<PostgresJsQuery>): unknown {
  if (!isQuery(result)) return result;
  const send = result.handler.bind(result);
  result.handler = (query) => {
    try {
      check();
    } catch (error) {
      return query.reject(error);
    }
    sent.add(query);
    const settled = (): void => void sent.delete(query);
    query.then(settled, settled);
    return send(query);
  };
  return result;
}

interface PostgresJsQuery extends Promise<unknown> {
  /** Like `cancel()`, which drops the promise. */
  canceller?: ((query: PostgresJsQuery) => Promise<unknown>) | null;
  handler(query: PostgresJsQuery): unknown;
  reject(error: unknown): unknown;
}

function isQuery(value: unknown): value is PostgresJsQuery {
  if (!(value instanceof Promise)) return false;
  return (
    "handler" in value && typeof value.handler === "function" && "reject" in value && typeof value.reject === "function"
  );
}

function transactionIsOver(): TxboxError {
  return new TxboxError("no_transaction", "The transaction is over, this query came too late", {
    field: "tx",
    fix: "Await every query before the handler returns, and stop when its signal aborts",
  });
}
