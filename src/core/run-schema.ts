import * as v8 from "node:v8";
import type { StandardSchema } from "./standard-schema.ts";

export type SchemaRun =
  /** What the schema gave. */
  | { readonly result: unknown }
  /** The schema, or a function in it, threw. */
  | { readonly thrown: unknown }
  /** It waits for something. Nothing of that can be left to fail without being heard. */
  | { readonly waits: true };

/**
 * Runs a schema that has to answer at once. Of a check that is asynchronous some libraries drop the promise, others go on as if
 * it had passed; a rejection that is not heard would end the process. So the promises that are made meanwhile are noted.
 */
export function runSchema(schema: StandardSchema, value: unknown): SchemaRun {
  const made: Promise<unknown>[] = [];
  const stop = noteInto(made);
  let run: SchemaRun;
  try {
    const result = validate(schema, value);
    run = isPromise(result) ? { waits: true } : { result };
    if (isPromise(result)) made.push(Promise.resolve(result));
  } catch (error) {
    run = isAsyncError(error) ? { waits: true } : { thrown: error };
  } finally {
    stop();
  }
  if (made.length === 0) return run;
  // Not by `then`, which a user may have replaced, and only now: hearing makes promises as well.
  for (const promise of made) void Promise.prototype.then.call(promise, undefined, () => undefined);
  return "result" in run && GOES_ON.has(schema["~standard"].vendor) ? { waits: true } : run;
}

/** Libraries that take the promise of an asynchronous check, morph or part for its answer. They make none of their own. */
const GOES_ON: ReadonlySet<string> = new Set(["valibot", "arktype"]);

interface SafeParse {
  safeParse(value: unknown): { success: boolean; data?: unknown; error?: { issues: readonly unknown[] } };
}

/**
 * The standard method of zod runs everything a second time when anything has thrown, and then gives a promise: one cannot tell what
 * throws from what waits. `safeParse` of zod 3, zod 4 and zod/mini throws what was thrown.
 */
function validate(schema: StandardSchema, value: unknown): unknown {
  if (!isZod(schema)) return schema["~standard"].validate(value);
  const { success, data, error } = schema.safeParse(value);
  return success ? { value: data } : { issues: error?.issues };
}

function isZod(schema: StandardSchema): schema is StandardSchema & SafeParse {
  return schema["~standard"].vendor === "zod" && typeof (schema as Partial<SafeParse>).safeParse === "function";
}

/** How zod 4, and then zod 3, say that something is asynchronous. */
const ASYNC_ERROR =
  /^(?:Encountered Promise during synchronous parse|Synchronous parse encountered promise|Async(?:hronous)? (?:refinement|transform) encountered during synchronous parse)/;

function isAsyncError(error: unknown): boolean {
  return error instanceof Error && ASYNC_ERROR.test(error.message);
}

/** Bun and Deno have no hook for it. */
function noteInto(made: Promise<unknown>[]): () => void {
  try {
    return v8.promiseHooks.onInit((promise) => void made.push(promise)) as () => void;
  } catch {
    return () => undefined;
  }
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as Partial<Promise<unknown>>).then === "function";
}
