import { AsyncLocalStorage } from "node:async_hooks";
import type { Cause, Headers } from "./message.ts";

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
  causationPath: readonly Cause[] | undefined;
  traceparent: string | undefined;
}

/** What the message being handled hands down to those it causes; undefined outside a handler. */
export function inheritedCausation(): Causation | undefined {
  const context = current.getStore();
  if (context === undefined) return undefined;
  const { headers } = context;
  return {
    correlationId: headers.correlationId ?? context.id,
    causationPath: [...(headers.causationPath ?? []), [context.module, context.type]],
    traceparent: headers.traceparent,
  };
}
