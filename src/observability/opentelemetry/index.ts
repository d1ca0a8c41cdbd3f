export { traceMessages, type TraceOptions } from "./trace-messages.ts";
export { measureMessages, type MeasureOptions } from "./measure-messages.ts";
export type * from "./opentelemetry-api.ts";
