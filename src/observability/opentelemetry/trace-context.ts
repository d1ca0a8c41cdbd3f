import { headerTextOf } from "../../core/header-text.ts";
import type { Headers, Message } from "../../core/message.ts";
import { textOrNull } from "../../core/text-or-null.ts";
import type { OtelSpanContext, TraceApi } from "./opentelemetry-api.ts";

const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** Longer ones may be cut or dropped, by the rules of W3C trace context. */
const MAX_STATE_BYTES = 512;
const SAMPLED = 1;
const NAME = '"traceparent"';
const UNSAMPLED = /"traceparent"\s*:\s*"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]"/y;

/** Writes `traceparent` and `tracestate`; nothing when there is no trace. */
export function writeTraceContext(context: OtelSpanContext, headers: Record<string, string>): void {
  const { traceId, spanId, traceFlags, traceState } = context;
  const traceparent = `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, "0")}`;
  if (!TRACEPARENT.test(traceparent)) return;
  headers["traceparent"] = traceparent;
  const state = textOrNull(traceState?.serialize(), MAX_STATE_BYTES);
  if (state !== null) headers["tracestate"] = state;
}

/** What the headers of a message say, whoever wrote them; undefined when that is no trace. */
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
  const json = headerTextOf(message);
  if (json === null || (json !== undefined && isSurelyUnsampled(json))) return undefined;
  const { headers } = message;
  const { traceparent }: { traceparent?: unknown } = headers;
  if (typeof traceparent !== "string" || traceparent.charAt(54) === "0") return undefined;
  const context = readTraceContext(headers, api);
  return context !== undefined && isSampled(context) ? context : undefined;
}

/** Headers as JSON that name one trace in the usual way, which is not sampled, or none. */
function isSurelyUnsampled(json: string): boolean {
  if (json.includes("\\")) return false;
  const at = json.indexOf(NAME);
  if (at === -1) return true;
  UNSAMPLED.lastIndex = at;
  return UNSAMPLED.test(json) && !json.includes(NAME, at + 1);
}

export function isSampled({ traceFlags }: OtelSpanContext): boolean {
  return (traceFlags & SAMPLED) !== 0;
}

export function isTrace(context: OtelSpanContext | undefined): context is OtelSpanContext {
  return context !== undefined && !/^0*$/.test(context.traceId) && !/^0*$/.test(context.spanId);
}
