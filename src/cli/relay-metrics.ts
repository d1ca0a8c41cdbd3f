import type { Store } from "../core/contracts.ts";
import { createHealth } from "../observability/health.ts";
import { collectMetrics } from "../observability/prometheus/index.ts";
import type { Relay } from "../relay/relay.ts";
import type { CliContext } from "./cli-context.ts";
import { importPrometheus } from "./import-driver.ts";
import { listenAddress } from "./listen-address.ts";
import { MetricsServer } from "./metrics-server.ts";
import { UsageError } from "./usage-error.ts";

/** `--max-age-ms` when it is not given. */
export const MAX_AGE_MS = 300_000;

export interface RelayMetrics {
  serverFor(store: Store, relays: readonly Relay[]): MetricsServer;
  end(): void;
}

interface MetricsFlags {
  readonly metrics?: string;
  readonly once?: boolean;
  readonly "max-age-ms"?: number;
}

/** Counts from the first event on; served once there are relays that can be asked for their health. */
export async function metricsOf(flags: MetricsFlags, { cwd, output }: CliContext): Promise<RelayMetrics | undefined> {
  if (flags.metrics === undefined) return undefined;
  if (flags.once === true) {
    const message = "--metrics goes with a relay that runs on: with --once it ends before the metrics can be read";
    throw new UsageError(message, { command: "relay" });
  }
  const address = listenAddress("--metrics", flags.metrics, "relay");
  const client = await importPrometheus(cwd);
  const collected = collectMetrics({ client, registry: new client.Registry() });
  const { registry } = collected;
  return {
    serverFor(store, relays) {
      const health = createHealth({ store, relays, maxAgeMs: flags["max-age-ms"] ?? MAX_AGE_MS });
      return new MetricsServer({ address, registry, health, output });
    },
    end: () => collected.end(),
  };
}
