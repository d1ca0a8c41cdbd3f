export type QueryCallback = (error: unknown, result?: unknown) => void;

/** The SQL in a text, a template or a query object. */
export function textOf(query: unknown): string {
  if (typeof query === "string") return query;
  if (Array.isArray(query)) return "raw" in query ? query.join("$1") : "";
  if (typeof query !== "object" || query === null || !("text" in query)) return "";
  return typeof query.text === "string" ? query.text : "";
}

/** The callback that node-postgres calls with the result of a query; undefined: a promise was asked for. */
export function callbackOf([query, ...others]: readonly unknown[]): QueryCallback | undefined {
  const own = typeof query === "object" && query !== null && "callback" in query ? query.callback : undefined;
  return [own, ...others].find((one): one is QueryCallback => typeof one === "function");
}
