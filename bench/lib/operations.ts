import * as client from "prom-client";
import { collectMetrics } from "../../src/observability/prometheus/index.ts";

/** What a service switches on to be observed, each by its name. What is added here is measured by the section operations. */
const OPERATIONS: Readonly<Record<string, () => void>> = {
  metrics: () => void collectMetrics({ client, registry: new client.Registry() }),
};

export const OPERATION_NAMES: readonly string[] = Object.keys(OPERATIONS);

/** Switches them on in this process, for good. */
export function switchOn(names: readonly string[]): void {
  for (const name of names) OPERATIONS[name]?.();
}
