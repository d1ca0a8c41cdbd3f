export { collectDiagnosis, type CollectDiagnosisOptions } from "./collect-diagnosis.ts";
export { collectFigures, type CollectFiguresOptions } from "./collect-figures.ts";
export { collectMetrics, type CollectedMetrics, type CollectMetricsOptions } from "./collect-metrics.ts";
export type { PrometheusClient, PrometheusRegistry } from "./prometheus-client.ts";
