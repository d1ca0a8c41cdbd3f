import * as api from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  InMemorySpanExporter,
  ParentBasedSampler,
  SimpleSpanProcessor,
  TracerProvider,
  TraceIdRatioBasedSampler,
  type ReadableSpan,
  type SpanExporter,
} from "@opentelemetry/sdk-trace";
import { traceMessages } from "../../src/observability/opentelemetry/index.ts";

export interface Tracing extends Disposable {
  readonly api: typeof api;
  /** Those that have ended, oldest first. */
  readonly spans: () => ReadableSpan[];
  /** The only span with this name. */
  readonly span: (name: string) => ReadableSpan;
  /** Runs in a span of the application. */
  readonly inSpan: <T>(name: string, work: () => Promise<T>) => Promise<T>;
}

/** The real SDK as an application sets it up, with the spans kept in memory, and messages being traced. */
export function startTracing({ ratio = 1, exporter }: { ratio?: number; exporter?: SpanExporter } = {}): Tracing {
  const memory = new InMemorySpanExporter();
  const provider = new TracerProvider({
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) }),
    spanProcessors: [new SimpleSpanProcessor({ exporter: exporter ?? memory })],
  });
  api.trace.setGlobalTracerProvider(provider);
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const end = traceMessages({ api });
  const spans = () => memory.getFinishedSpans();
  return {
    api,
    spans,
    span(name) {
      const found = spans().filter((span) => span.name === name);
      if (found.length === 1) return found[0]!;
      throw new Error(`${found.length} spans "${name}" of ${JSON.stringify(spans().map((span) => span.name))}`);
    },
    inSpan: (name, work) =>
      api.trace.getTracer("application").startActiveSpan(name, (span) => work().finally(() => span.end())),
    [Symbol.dispose]() {
      end();
      api.trace.disable();
      api.context.disable();
    },
  };
}

/** Whether the one is the parent of the other, in one trace. */
export function isChild(child: ReadableSpan, parent: ReadableSpan): boolean {
  const { traceId, spanId } = parent.spanContext();
  return child.spanContext().traceId === traceId && child.parentSpanContext?.spanId === spanId;
}
