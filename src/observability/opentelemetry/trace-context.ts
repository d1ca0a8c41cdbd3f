import { lookAtHeaders } from "../../core/header-bytes.ts";
import type { Headers, Message } from "../../core/message.ts";
import { textOrNull } from "../../core/text-or-null.ts";
import type { OtelSpanContext, TraceApi } from "./opentelemetry-api.ts";

const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** Longer ones may be cut or dropped, by the rules of W3C trace context. */
const MAX_STATE_BYTES = 512;
const SAMPLED = 1;
const NAME = Buffer.from('"traceparent"');
/** By the last byte of a place: how far the name may be moved on. */
const SKIPS = new Uint8Array(256).fill(NAME.length);
for (let i = 0; i < NAME.length - 1; i++) SKIPS[NAME[i]!] = NAME.length - 1 - i;
const [QUOTE, COLON, SPACE] = Buffer.from('": ');
const EVEN_DIGITS = [...Buffer.from("02468ace")];
/** Of a traceparent of version 00. */
const LENGTH = 55;

/** Writes `traceparent` and `tracestate`; nothing when there is no trace. */
export function writeTraceContext(context: OtelSpanContext, headers: Record<string, string>): void {
  const { traceId, spanId, traceFlags, traceState } = context;
  const traceparent = `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, "0")}`;
  if (!TRACEPARENT.test(traceparent)) return;
  headers["traceparent"] = traceparent;
  const state = textOrNull(traceState?.serialize(), MAX_STATE_BYTES);
  if (state !== null) headers["tracestate"] = state;
}

/** What the headers of a message from any sender say; undefined when that is no trace. */
export function readTraceContext(headers: Headers, api: TraceApi): OtelSpanContext | undefined {
  const { traceparent, tracestate }: { traceparent?: unknown; tracestate?: unknown } = headers;
  const found = typeof traceparent === "string" && traceparent.length <= 200 ? TRACEPARENT.exec(traceparent) : null;
  if (found === null) return undefined;
  const [, version, traceId, spanId, flags, more] = found;
  if (version === "00" && more !== undefined) return undefined;
  const context = { traceId: traceId!, spanId: spanId!, traceFlags: Number.parseInt(flags!, 16), isRemote: true };
  const state = textOrNull(tracestate, MAX_STATE_BYTES);
  return state === null ? context : { ...context, traceState: api.createTraceState(state) };
}

/** Cheap for messages that are not sampled, which are nearly all of them. */
export function readSampledContext(message: Message, api: TraceApi): OtelSpanContext | undefined {
  if (lookAtHeaders(message, isSurelyUnsampled) === true) return undefined;
  const { headers } = message;
  const { traceparent }: { traceparent?: unknown } = headers;
  if (typeof traceparent !== "string" || traceparent.charAt(54) === "0") return undefined;
  const context = readTraceContext(headers, api);
  return context !== undefined && isSampled(context) ? context : undefined;
}

/**
 * Whether headers, as JSON, surely name no sampled trace: none at all, or one in the usual form. A name written with
 * escapes, or twice, gets no span.
 */
function isSurelyUnsampled(bytes: Uint8Array, from: number, to: number): boolean {
  const name = find(bytes, from, to);
  if (name === -1) return true;
  const colon = skipSpace(bytes, name + NAME.length);
  if (bytes[colon] !== COLON) return false;
  const opening = skipSpace(bytes, colon + 1);
  const flags = opening + LENGTH;
  return bytes[opening] === QUOTE && bytes[flags + 1] === QUOTE && EVEN_DIGITS.includes(bytes[flags]!);
}

/** Where the name is; -1: nowhere. Looks at one byte in thirteen of texts that have none of its letters (Horspool). */
function find(bytes: Uint8Array, from: number, to: number): number {
  for (let at = from; at + NAME.length <= to; at += SKIPS[bytes[at + NAME.length - 1]!]!) {
    let i = NAME.length - 1;
    while (i >= 0 && bytes[at + i] === NAME[i]) i--;
    if (i < 0) return at;
  }
  return -1;
}

function skipSpace(bytes: Uint8Array, at: number): number {
  while (bytes[at] === SPACE) at++;
  return at;
}

export function isSampled({ traceFlags }: OtelSpanContext): boolean {
  return (traceFlags & SAMPLED) !== 0;
}

export function isTrace(context: OtelSpanContext | undefined): context is OtelSpanContext {
  return context !== undefined && !/^0*$/.test(context.traceId) && !/^0*$/.test(context.spanId);
}
