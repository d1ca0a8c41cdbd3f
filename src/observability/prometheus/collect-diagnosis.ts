import { safeListener } from "../../core/channels.ts";
import { describeError } from "../../core/errors.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import type { CollectedMetrics } from "./collect-metrics.ts";
import { clearGauge, createMetrics, removeMetrics, targetOf } from "./prometheus-client.ts";
import type { PrometheusClient, PrometheusRegistry } from "./prometheus-client.ts";

export interface CollectDiagnosisOptions {
  /** The module: `import * as client from "prom-client"`. */
  client: PrometheusClient;
  /** `() => diagnose(store)`. */
  diagnose: () => Promise<readonly { readonly check: string; readonly severity: string }[]>;
  /** Default: the default registry of prom-client. */
  registry?: PrometheusRegistry;
  /** The doctor looks again when a scrape finds its last look older than this. Default: a minute. */
  everyMs?: number;
  /** The doctor could not look at all. */
  onError?: (error: unknown) => void;
}

const KNOWN = ["client", "diagnose", "registry", "everyMs", "onError"];

export const DIAGNOSIS_METRICS = {
  txbox_doctor_findings: {
    kind: "gauge",
    help: "What the doctor has found, by check and severity. Absent until it has looked for the first time.",
    labels: ["check", "severity"],
  },
  txbox_doctor_age_seconds: { kind: "gauge", help: "How old the findings are.", labels: [] },
} as const;

/** Findings of the doctor. It takes its time, so a scrape begins a look and shows what the one before has found. */
export function collectDiagnosis(options: CollectDiagnosisOptions): CollectedMetrics {
  const of = "collectDiagnosis";
  rejectUnknownOptions(of, options, KNOWN);
  const { diagnose, everyMs = 60_000, onError } = options;
  requireFunction(of, "diagnose", diagnose, "Pass () => diagnose(store)");
  requireInteger(of, "everyMs", everyMs, 0);
  if (onError !== undefined) requireFunction(of, "onError", onError, "Pass (error) => { … }");
  const target = targetOf(of, options);
  const tell = onError === undefined ? undefined : safeListener("onError", onError);
  let begunAt = Number.NEGATIVE_INFINITY;
  let endedAt: number | undefined;
  let looking = false;

  async function look(): Promise<void> {
    looking = true;
    begunAt = performance.now();
    try {
      const found = await diagnose();
      clearGauge(metrics.txbox_doctor_findings);
      const counts = new Map<string, number>();
      for (const { check, severity } of found) {
        const name = JSON.stringify({ check, severity });
        counts.set(name, (counts.get(name) ?? 0) + 1);
      }
      for (const [name, count] of counts)
        metrics.txbox_doctor_findings.set(JSON.parse(name) as Record<string, string>, count);
      endedAt = performance.now();
    } catch (error) {
      tell?.(error, describeError(error));
    } finally {
      looking = false;
    }
  }

  async function refresh(): Promise<void> {
    if (!looking && performance.now() - begunAt >= everyMs) void look();
    if (endedAt !== undefined) metrics.txbox_doctor_age_seconds.set({}, (performance.now() - endedAt) / 1000);
  }

  const metrics = createMetrics(target, DIAGNOSIS_METRICS, refresh);
  return { registry: target.registry, end: () => removeMetrics(target.registry, DIAGNOSIS_METRICS) };
}
