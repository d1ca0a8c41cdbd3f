import { TxboxError } from "../../core/errors.ts";
import { valueKind } from "../../core/value-kind.ts";

/** The module prom-client, as far as it is used here: `import * as client from "prom-client"`. */
export interface PrometheusClient {
  readonly Counter: new (configuration: MetricConfiguration) => CounterLike;
  readonly Gauge: new (configuration: MetricConfiguration) => GaugeLike;
  readonly Histogram: new (configuration: MetricConfiguration) => HistogramLike;
  /** The default registry. */
  readonly register: PrometheusRegistry;
}

export interface PrometheusRegistry {
  readonly contentType: string;
  metrics(): Promise<string>;
  getSingleMetric(name: string): unknown;
  removeSingleMetric(name: string): void;
}

interface MetricConfiguration {
  name: string;
  help: string;
  labelNames: string[];
  /** Registries of the same prom-client; it alone knows their whole type. */
  registers: never[];
  buckets?: number[];
  collect?: () => Promise<void>;
}

export type Labels = Record<string, string>;

export interface CounterLike {
  inc(labels: Labels, value?: number): void;
}

export interface GaugeLike {
  set(labels: Labels, value: number): void;
  inc(labels: Labels, value?: number): void;
  dec(labels: Labels, value?: number): void;
  reset(): void;
  remove(labels: Labels): void;
}

export interface HistogramLike {
  observe(labels: Labels, value: number): void;
}

/** What a metric is. The tables of docs/metrics.md, the rules and the dashboard are checked against these. */
export interface MetricDefinition {
  readonly kind: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly labels: readonly string[];
}

export type Definitions = Readonly<Record<string, MetricDefinition>>;

interface Kinds {
  counter: CounterLike;
  gauge: GaugeLike;
  histogram: HistogramLike;
}

export type Metrics<D extends Definitions> = { readonly [Name in keyof D]: Kinds[D[Name]["kind"]] };

/** From a millisecond to a minute: a batch may be one fast write, or one slow handler. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export interface MetricsTarget {
  /** Names the function in errors. */
  readonly of: string;
  readonly client: PrometheusClient;
  readonly registry: PrometheusRegistry;
}

/** Makes the metrics in the registry. None is made when one of them is there already. */
export function createMetrics<const D extends Definitions>(
  { of, client, registry }: MetricsTarget,
  definitions: D,
  collect?: () => Promise<void>,
): Metrics<D> {
  const taken = Object.keys(definitions).find((name) => registry.getSingleMetric(name) !== undefined);
  if (taken !== undefined) {
    throw new TxboxError("invalid_option", `${of}: the registry has a metric ${taken} already`, {
      field: "registry",
      fix: `Call ${of} once for a registry, or end() what it gave before; or pass a registry of its own`,
    });
  }
  const make = (name: string, { kind, help, labels }: MetricDefinition): Kinds[keyof Kinds] => {
    const configuration = {
      name,
      help,
      labelNames: [...labels],
      registers: [registry as never],
      ...(collect === undefined ? {} : { collect }),
    };
    if (kind === "histogram") return new client.Histogram({ ...configuration, buckets: BUCKETS });
    if (kind === "counter") return new client.Counter(configuration);
    const gauge = new client.Gauge(configuration);
    clearGauge(gauge);
    return gauge;
  };
  return Object.fromEntries(
    Object.entries(definitions).map(([name, definition]) => [name, make(name, definition)]),
  ) as unknown as Metrics<D>;
}

/** It shows nothing: after a reset alone, a gauge without labels shows 0. */
export function clearGauge(gauge: GaugeLike): void {
  gauge.reset();
  gauge.remove({});
}

export function removeMetrics(registry: PrometheusRegistry, definitions: Definitions): void {
  for (const name of Object.keys(definitions)) registry.removeSingleMetric(name);
}

/** The client, and the registry to use. */
export function targetOf(
  of: string,
  { client, registry }: { client: PrometheusClient; registry?: PrometheusRegistry },
): MetricsTarget {
  const isClient =
    typeof client?.Counter === "function" &&
    typeof client.Gauge === "function" &&
    typeof client.Histogram === "function";
  if (!isClient) {
    throw new TxboxError("invalid_option", `${of}: client must be the module prom-client, got ${valueKind(client)}`, {
      field: "client",
      fix: 'Pass { client } after `import * as client from "prom-client"`',
    });
  }
  const into = registry ?? client.register;
  if (typeof into?.metrics !== "function" || typeof into.getSingleMetric !== "function") {
    throw new TxboxError(
      "invalid_option",
      `${of}: registry must be a registry of prom-client, got ${valueKind(into)}`,
      {
        field: "registry",
        fix: "Pass new client.Registry(), or leave it out for the default one",
      },
    );
  }
  return { of, client, registry: into };
}
