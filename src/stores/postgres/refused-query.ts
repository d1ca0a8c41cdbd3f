import { callbackOf } from "./query-arguments.ts";

/** A query object of node-postgres, pg-cursor or pg-query-stream: it is told what happened, and returned. */
interface Submittable {
  submit: unknown;
  callback?: unknown;
  handleError(error: unknown, connection?: unknown): void;
}

/**
 * The answer of node-postgres to a query that failed, in the form in which it was asked: by callback, through the query
 * object, or as a promise. PGlite is always asked for a promise.
 */
export function refusedQuery(args: readonly unknown[], error: unknown): unknown {
  const [query] = args;
  const callback = callbackOf(args);
  if (isSubmittable(query)) {
    query.callback ??= callback;
    process.nextTick(() => query.handleError(error));
    return query;
  }
  if (callback === undefined) return Promise.reject(error);
  process.nextTick(callback, error);
  return undefined;
}

function isSubmittable(query: unknown): query is Submittable {
  if (typeof query !== "object" || query === null || !("submit" in query)) return false;
  return typeof query.submit === "function" && "handleError" in query && typeof query.handleError === "function";
}
