import type { Channels } from "../../core/events.ts";
import { rejectUnknownOptions } from "../../core/options.ts";
import { listen } from "../listen.ts";
import { boundedLabel } from "./bounded-label.ts";
import { listenToInboxes } from "./inbox-metrics.ts";
import {
  createMetrics,
  removeMetrics,
  targetOf,
  type Metrics,
  type PrometheusClient,
  type PrometheusRegistry,
} from "./prometheus-client.ts";
import { PROCESS_METRICS } from "./process-metrics.ts";
import { listenToRelays } from "./relay-metrics.ts";

export interface CollectMetricsOptions {
  /** The module: `import * as client from "prom-client"`. */
  client: PrometheusClient;
  /** Default: the default registry of prom-client. */
  registry?: PrometheusRegistry;
}

export interface CollectedMetrics {
  readonly registry: PrometheusRegistry;
  /** Stops counting and takes the metrics out of the registry. */
  end(): void;
}

/** So many different names are labels of their own; all others are "other". */
const MAX_STREAMS = 100;
const MAX_NAMES = 1000;

export type ProcessMetrics = Metrics<typeof PROCESS_METRICS>;

/** What all parts that fill the metrics have in common. */
export interface Counting {
  readonly metrics: ProcessMetrics;
  /** Bounded: of a relay, of a consumer. */
  readonly relay: (name: string) => string;
  readonly consumer: (name: string) => string;
  readonly on: <Name extends keyof Channels>(channel: Name, hear: (told: Channels[Name]) => void) => void;
}

/**
 * Counts what every outbox, relay, inbox and subscriber of this process does, from now on. Figures of the store, such as
 * what is pending, come from `collectFigures` in one process: the exporter.
 */
export function collectMetrics(options: CollectMetricsOptions): CollectedMetrics {
  const of = "collectMetrics";
  rejectUnknownOptions(of, options, ["client", "registry"]);
  const target = targetOf(of, options);
  const { registry } = target;
  const metrics = createMetrics(target, PROCESS_METRICS);
  const ends: (() => void)[] = [];
  const counting: Counting = {
    metrics,
    relay: boundedLabel(MAX_NAMES),
    consumer: boundedLabel(MAX_NAMES),
    on: (channel, hear) => void ends.push(listen(channel, hear)),
  };
  const stream = boundedLabel(MAX_STREAMS);
  counting.on("txbox:outbox:enqueue:end", ({ error, messages = [] }) => {
    if (error !== undefined) return;
    for (const message of messages) {
      if (!message.duplicate) metrics.outbox_new_total.inc({ stream: stream(message.stream) });
    }
  });
  listenToRelays(counting);
  listenToInboxes(counting);
  return {
    registry,
    end() {
      for (const end of ends.splice(0)) end();
      removeMetrics(registry, PROCESS_METRICS);
    },
  };
}
