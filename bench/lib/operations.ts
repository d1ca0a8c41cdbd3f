import * as api from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TracerProvider,
  TraceIdRatioBasedSampler,
  type SpanExporter,
} from "@opentelemetry/sdk-trace";
import * as client from "prom-client";
import { traceMessages } from "../../src/observability/opentelemetry/index.ts";
import { collectMetrics } from "../../src/observability/prometheus/index.ts";

/** Spans are put together and handed over in batches, as for a collector; where they go is not the relay's cost. */
const nowhere: SpanExporter = { export: (_, done) => done({ code: 0 }), shutdown: () => Promise.resolve() };

function traces(): void {
  const provider = new TracerProvider({
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(0.01) }),
    spanProcessors: [new BatchSpanProcessor({ exporter: nowhere })],
  });
  api.trace.setGlobalTracerProvider(provider);
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  traceMessages({ api });
}

/** What a service switches on to be observed, each by its name. Samples are always written. */
const OPERATIONS: Readonly<Record<string, () => void>> = {
  metrics: () => void collectMetrics({ client, registry: new client.Registry() }),
  traces,
};

export const OPERATION_NAMES: readonly string[] = Object.keys(OPERATIONS);

/** Switches them on in this process, for good. */
export function switchOn(names: readonly string[]): void {
  for (const name of names) OPERATIONS[name]?.();
}
