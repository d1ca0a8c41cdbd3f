/**
 * What is used of `@opentelemetry/api`. Pass the module itself: `import * as api from "@opentelemetry/api"`. It is
 * typed here by its form, so that applications that do not trace need not install it.
 */
export interface TraceApi {
  readonly ROOT_CONTEXT: OtelContext;
  createContextKey(description: string): symbol;
  createTraceState(text: string): OtelTraceState;
  readonly context: {
    active(): OtelContext;
    with(context: OtelContext, work: () => unknown): unknown;
  };
  readonly trace: {
    getTracer(name: string): OtelTracer;
    getSpan(context: OtelContext): OtelSpan | undefined;
    setSpan(context: OtelContext, span: OtelSpan): OtelContext;
    setSpanContext(context: OtelContext, spanContext: OtelSpanContext): OtelContext;
  };
}

/** What is used of `@opentelemetry/api` for metrics. */
export interface MetricsApi {
  readonly metrics: { getMeter(name: string): OtelMeter };
}

export interface OtelContext {
  getValue(key: symbol): unknown;
  setValue(key: symbol, value: unknown): OtelContext;
  deleteValue(key: symbol): OtelContext;
}

export interface OtelTraceState {
  set(key: string, value: string): OtelTraceState;
  unset(key: string): OtelTraceState;
  get(key: string): string | undefined;
  serialize(): string;
}

export interface OtelSpanContext {
  traceId: string;
  spanId: string;
  isRemote?: boolean;
  traceFlags: number;
  traceState?: OtelTraceState;
}

export type OtelAttributes = Record<string, string | number | boolean>;

export interface OtelLink {
  context: OtelSpanContext;
  attributes?: OtelAttributes;
}

export interface OtelTracer {
  startSpan(
    name: string,
    options: {
      kind: number;
      attributes: OtelAttributes;
      links?: OtelLink[];
      startTime?: number;
      root?: boolean;
    },
    context: OtelContext,
  ): OtelSpan;
}

export interface OtelSpan {
  spanContext(): OtelSpanContext;
  isRecording(): boolean;
  setAttribute(name: string, value: string | number | boolean): unknown;
  setStatus(status: { code: number; message?: string }): unknown;
  updateName(name: string): unknown;
  recordException(exception: { name: string; message: string; stack?: string }): void;
  end(endTime?: number): void;
}

/** The numbers of `SpanKind` and of `SpanStatusCode.ERROR`. */
export const INTERNAL = 0;
export const CLIENT = 2;
export const PRODUCER = 3;
export const CONSUMER = 4;
export const ERROR = 2;

export interface OtelMeter {
  createCounter(name: string, options: OtelInstrumentOptions): OtelCounter;
  createHistogram(name: string, options: OtelInstrumentOptions): OtelHistogram;
}

export interface OtelInstrumentOptions {
  description: string;
  unit: string;
  advice?: { explicitBucketBoundaries: number[] };
}

export interface OtelCounter {
  add(value: number, attributes: OtelAttributes): void;
}

export interface OtelHistogram {
  record(value: number, attributes: OtelAttributes): void;
}
