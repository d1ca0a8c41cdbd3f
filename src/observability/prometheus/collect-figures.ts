import type { Admin, RelayFigures, StoreFigures } from "../../core/contracts.ts";
import { describeError, TxboxError } from "../../core/errors.ts";
import { processesOf } from "../../core/live-processes.ts";
import { oneLook } from "../../core/one-look.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import { ABORTED, LATE, settledWithin } from "../../core/settled-within.ts";
import { safeListener } from "../../core/channels.ts";
import type { CollectedMetrics } from "./collect-metrics.ts";
import { FIGURES_METRICS, UP_METRICS, type RelayFigure } from "./figures-metrics.ts";
import {
  clearGauge,
  createMetrics,
  removeMetrics,
  targetOf,
  type Metrics,
  type PrometheusClient,
  type PrometheusRegistry,
} from "./prometheus-client.ts";

export interface CollectFiguresOptions {
  /** The module: `import * as client from "prom-client"`. */
  client: PrometheusClient;
  store: { readonly admin: Pick<Admin, "figures"> };
  /** Default: the default registry of prom-client. */
  registry?: PrometheusRegistry;
  /** Scrapes within this time share one look at the store. Default 5 s. */
  everyMs?: number;
  /** A look that takes longer counts as failed. Default 5 s, less than the 10 s that Prometheus waits. */
  deadlineMs?: number;
  /** The store could not be looked at; told again when it was back in between. */
  onError?: (error: unknown) => void;
}

const KNOWN = ["client", "store", "registry", "everyMs", "deadlineMs", "onError"];
/** So many streams without a relay are shown, those that wait longest. */
const MAX_STREAMS = 100;
const INBOX = "inbox.";

/**
 * Figures of the store, looked at when the registry is scraped. While the store is away, `txbox_up` is 0 and no figures
 * are shown, so that no old figure looks new. One process is enough for a store: the exporter is one.
 */
export function collectFigures(options: CollectFiguresOptions): CollectedMetrics {
  const of = "collectFigures";
  rejectUnknownOptions(of, options, KNOWN);
  const { store, everyMs = 5000, deadlineMs = 5000, onError } = options;
  requireFunction(of, "store.admin.figures", store?.admin?.figures, "Pass { store: createPostgresStore({ client }) }");
  requireInteger(of, "everyMs", everyMs, 0);
  requireInteger(of, "deadlineMs", deadlineMs, 1);
  if (onError !== undefined) requireFunction(of, "onError", onError, "Pass (error) => { … }");
  const target = targetOf(of, options);
  const tell = onError === undefined ? undefined : safeListener("onError", onError);
  const figures = oneLook(() => store.admin.figures());
  let lookedAt = Number.NEGATIVE_INFINITY;
  let looking: Promise<void> | undefined;
  let up: boolean | undefined;

  async function look(): Promise<void> {
    const startedAt = performance.now();
    try {
      const found = await settledWithin(figures(), deadlineMs);
      if (found === LATE || found === ABORTED) throw late(deadlineMs);
      show(metrics, found, (performance.now() - startedAt) / 1000);
      up = true;
    } catch (error) {
      for (const gauge of Object.values(metrics)) clearGauge(gauge);
      if (up !== false) tell?.(error, describeError(error));
      up = false;
    }
    lookedAt = performance.now();
    clearGauge(upMetrics.txbox_figures_age_seconds);
    upMetrics.txbox_up.set({}, up ? 1 : 0);
  }

  /** Every metric asks for it; they share one look. */
  async function refresh(): Promise<void> {
    if (looking === undefined && performance.now() - lookedAt >= everyMs) {
      looking = look().finally(() => (looking = undefined));
    }
    await looking;
    if (up === true) upMetrics.txbox_figures_age_seconds.set({}, (performance.now() - lookedAt) / 1000);
  }

  const metrics = createMetrics(target, FIGURES_METRICS, refresh);
  const upMetrics = createMetrics(target, UP_METRICS, refresh);
  return {
    registry: target.registry,
    end() {
      removeMetrics(target.registry, FIGURES_METRICS);
      removeMetrics(target.registry, UP_METRICS);
    },
  };
}

function late(deadlineMs: number): TxboxError {
  return new TxboxError("unavailable", `The store did not give its figures within ${deadlineMs} ms`, {
    retryable: true,
  });
}

type FiguresMetrics = Metrics<typeof FIGURES_METRICS>;

function show(metrics: FiguresMetrics, figures: StoreFigures, seconds: number): void {
  for (const gauge of Object.values(metrics)) clearGauge(gauge);
  for (const relay of figures.relays) showRelay(metrics, relay);
  metrics.outbox_scheduled_records.set({}, figures.scheduled.count);
  for (const { stream, oldestAgeMs } of figures.unread.slice(0, MAX_STREAMS)) {
    metrics.outbox_unread_oldest_age_seconds.set({ stream }, oldestAgeMs / 1000);
  }
  metrics.outbox_unarchived_segments.set({}, figures.unarchivedSegments);
  metrics.outbox_log_bytes.set({}, figures.logBytes);
  metrics.inbox_receipt_bytes.set({}, figures.receiptBytes);
  for (const { consumer, count } of figures.failedReceipts ?? []) metrics.inbox_failed_records.set({ consumer }, count);
  metrics.txbox_figures_duration_seconds.set({}, seconds);
}

function showRelay(metrics: FiguresMetrics, relay: RelayFigures): void {
  const { name, streams } = relay;
  const lag = (relay.oldestPendingAgeMs ?? 0) / 1000;
  const values: Record<RelayFigure, number> = {
    pending_records: relay.pending,
    oldest_pending_age_seconds: lag,
    lag_seconds: lag,
    parked_records: relay.parked,
    blocked_keys: relay.blockedKeys,
    dead_records: relay.dead,
  };
  const consumer = consumerOf(streams);
  for (const [figure, value] of Object.entries(values) as [RelayFigure, number][]) {
    metrics[`outbox_${figure}`].set({ relay: name }, value);
    if (consumer !== undefined) metrics[`inbox_${figure}`].set({ consumer }, value);
  }
  metrics.outbox_relay_paused.set({ relay: name }, relay.paused ? 1 : 0);
  metrics.outbox_relay_processes.set({ relay: name }, processesOf(relay));
  metrics.outbox_retention_held_back.set({ relay: name }, relay.holdsBackRetention ? 1 : 0);
}

/** A relay that handles what inboxes have stored reads their streams and no other. */
function consumerOf(streams: readonly string[] | null): string | undefined {
  if (streams === null || streams.length === 0 || !streams.every((stream) => stream.startsWith(INBOX)))
    return undefined;
  return streams.map((stream) => stream.slice(INBOX.length)).join(",");
}
