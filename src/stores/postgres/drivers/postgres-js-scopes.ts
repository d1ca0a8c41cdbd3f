import { errorCode } from "../../../core/errors.ts";
import { hasMethods, notATransaction } from "./driver.ts";
import type { PostgresJs, PostgresJsTx } from "./postgres-js.ts";

/** A query of postgres.js is sent when it is awaited, by its `handler`. */
export interface PostgresJsQuery extends Promise<unknown> {
  handler(query: PostgresJsQuery): unknown;
  reject(error: unknown): unknown;
  execute(): unknown;
  /** The connection that it was sent on; null before that. */
  readonly state?: unknown;
}

/** A transaction or a savepoint of postgres.js, until its function returns or throws. */
interface Scope {
  readonly outer: Scope | undefined;
  ended: boolean;
}

/** A property of the handle, so that it is found through the proxies around it as well. */
const SCOPE = Symbol("scope");
const watched = new WeakSet<object>();

/**
 * postgres.js does not say that a transaction has ended: it sends what comes later by itself, or into the transaction that
 * its connection serves by then. So the ends are noted in front of `begin` and `savepoint`.
 */
export function noteEnds(sql: PostgresJs): void {
  if (watched.has(sql)) return;
  watched.add(sql);
  noteEndsBy(sql, "begin", undefined);
}

type Run = (handle: object) => unknown;

function noteEndsBy(owner: object, name: "begin" | "savepoint", outer: Scope | undefined): void {
  const original = (Reflect.get(owner, name) as (...args: unknown[]) => unknown).bind(owner);
  const noting = (run: Run) => async (handle: object) => {
    const scope: Scope = { outer, ended: false };
    Object.defineProperty(handle, SCOPE, { value: scope });
    noteEndsBy(handle, "savepoint", scope);
    try {
      const result = run(handle);
      return await (Array.isArray(result) ? Promise.all(result) : result);
    } finally {
      scope.ended = true;
    }
  };
  Object.defineProperty(owner, name, {
    configurable: true,
    enumerable: true,
    writable: true,
    value: (...args: unknown[]) =>
      original(...args.map((argument) => (typeof argument === "function" ? noting(argument as Run) : argument))),
  });
}

/** Sends a query of `tx`, in whose transaction it has to run: refuses it where that has ended. */
export async function sendWithin(tx: PostgresJsTx, query: PostgresJsQuery): Promise<unknown> {
  const scope = Reflect.get(tx, SCOPE) as Scope | undefined;
  if (scope === undefined) return sendProven(tx, query);
  requireOpen(scope);
  // Sent a moment later: COMMIT may be under way by then.
  const send = query.handler.bind(query);
  query.handler = (sent) => {
    try {
      requireOpen(scope);
    } catch (error) {
      return sent.reject(error);
    }
    return send(sent);
  };
  return query;
}

/** Refuses, before anything else is done, what is known to have ended. */
export function requireOpenHandle(tx: object): void {
  const scope = Reflect.get(tx, SCOPE) as Scope | undefined;
  if (scope !== undefined) requireOpen(scope);
}

function requireOpen(scope: Scope): void {
  for (let one: Scope | undefined = scope; one !== undefined; one = one.outer) {
    if (one.ended) throw hasEnded(one.outer === undefined ? "transaction" : "savepoint");
  }
}

function hasEnded(what: "transaction" | "savepoint"): Error {
  const call = what === "transaction" ? "sql.begin(async (tx) => …)" : "tx.savepoint(async (tx) => …)";
  return notATransaction(`a postgres.js ${what} that has ended`, `Await enqueue inside ${call}`);
}

/**
 * For a handle whose begin was not seen: of another instance, or older than the store. While its connection is busy, a
 * handle keeps queries in a list of its own, from which only its own transaction goes on. So a query with a parameter, which keeps
 * the connection busy, goes first, and ours waits behind it: if it is not sent then, the transaction is not the one that is
 * open there, if any is.
 */
async function sendProven(tx: PostgresJsTx, query: PostgresJsQuery): Promise<unknown> {
  const first = tx.unsafe("select $1::text", [""] as never[], { prepare: false }) as PostgresJsQuery;
  const answered = first.then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  query.execute();
  const failed = await answered;
  if (query.state != null) return query;
  if (failed !== undefined && errorCode(failed.error) !== IN_FAILED_TRANSACTION) throw failed.error;
  throw hasEnded("transaction");
}

const IN_FAILED_TRANSACTION = "25P02";

/** What a transaction of postgres.js has, and those of its imitations do not. */
export function isHandle(value: object): value is PostgresJsTx {
  return hasMethods(value, "unsafe", "typed", "notify");
}
