import { AsyncLocalStorage } from "node:async_hooks";
import type { Cause, Headers } from "./message.ts";
import { textOrNull } from "./text-or-null.ts";

/** What is being handled right now, so that what a handler enqueues carries on its correlation and causes. */
export interface HandlingContext {
  module: string;
  id: string;
  type: string;
  headers: Headers;
}

const current = new AsyncLocalStorage<HandlingContext>();

export function runHandling<T>(context: HandlingContext, run: () => Promise<T>): Promise<T> {
  return current.run(context, run);
}

export interface Causation {
  correlationId: string | undefined;
  /** The id of the message being handled. */
  causationId: string | undefined;
  causationPath: readonly Cause[] | undefined;
  traceparent: string | undefined;
  tracestate: string | undefined;
}

/** What the message being handled hands down to those it causes; undefined outside a handler. */
export function inheritedCausation(): Causation | undefined {
  const context = current.getStore();
  if (context === undefined) return undefined;
  const { headers } = context;
  // Other producers may use these names for something else, or to do harm: only valid values are handed down.
  return {
    correlationId: textOrNull(headers.correlationId) ?? context.id,
    causationId: textOrNull(context.id, 200) ?? undefined,
    causationPath: [...inheritedPath(headers.causationPath), [context.module, context.type]],
    traceparent: textOrNull(headers.traceparent, 200) ?? undefined,
    tracestate: textOrNull(headers.tracestate, 512) ?? undefined,
  };
}

/** Adds what is inherited to headers that do not say otherwise. */
export function inheritInto(headers: Headers, causation: Causation): void {
  const { causationId, causationPath, traceparent, tracestate } = causation;
  if (causationId !== undefined) headers.causationId ??= causationId;
  if (causationPath !== undefined) headers.causationPath ??= causationPath;
  if (traceparent === undefined || headers.traceparent !== undefined) return;
  headers.traceparent = traceparent;
  if (tracestate !== undefined) headers.tracestate ??= tracestate;
}

/** A message that causes itself again and again must not grow for ever: the last causes are kept. */
const MAX_INHERITED_CAUSES = 99;
/** Together with everything else they have to fit into the headers. */
const MAX_PATH_BYTES = 32 * 1024;

function inheritedPath(value: unknown): readonly Cause[] {
  if (!isCausationPath(value)) return [];
  const path = value.slice(-MAX_INHERITED_CAUSES);
  return Buffer.byteLength(JSON.stringify(path)) > MAX_PATH_BYTES ? [] : path;
}

export function isCausationPath(value: unknown): value is readonly Cause[] {
  const isPair = (pair: unknown) =>
    Array.isArray(pair) && pair.length === 2 && pair.every((part) => typeof part === "string");
  return Array.isArray(value) && value.every(isPair);
}
