import type { MetricDefinition } from "./prometheus-client.ts";

type Gauge = MetricDefinition & { readonly kind: "gauge" };

const OF_RELAY = {
  pending_records: "Messages not published yet, parked ones included. An estimate above 10,000.",
  oldest_pending_age_seconds: "How long the oldest pending message has waited; 0 when there is none.",
  lag_seconds: "The same as the age of the oldest pending message.",
  parked_records: "Messages that wait behind failed ones.",
  blocked_keys: "Keys that have failed messages.",
  dead_records: "Dead letters that wait to be requeued or discarded.",
} as const;

export type RelayFigure = keyof typeof OF_RELAY;

type Twins = Readonly<Record<`${"outbox" | "inbox"}_${RelayFigure}`, Gauge>>;

const TWINS = Object.fromEntries(
  Object.entries(OF_RELAY).flatMap(([name, help]) => [
    [`outbox_${name}`, { kind: "gauge", help, labels: ["relay"] }],
    [`inbox_${name}`, { kind: "gauge", help: `${help} Of a stored inbox.`, labels: ["consumer"] }],
  ]),
) as unknown as Twins;

const OTHERS = {
  outbox_relay_paused: { kind: "gauge", help: "1 while the relay is paused.", labels: ["relay"] },
  outbox_relay_processes: { kind: "gauge", help: "Processes that run the relay now.", labels: ["relay"] },
  outbox_retention_held_back: {
    kind: "gauge",
    help: "1 while messages past their retention are kept because the relay has not settled them.",
    labels: ["relay"],
  },
  outbox_unarchived_segments: {
    kind: "gauge",
    help: "Segments past their retention that wait for their archive.",
    labels: [],
  },
  outbox_scheduled_records: {
    kind: "gauge",
    help: "Messages whose deliverAt has not come. An estimate above 10,000.",
    labels: [],
  },
  outbox_unread_oldest_age_seconds: {
    kind: "gauge",
    help: "Streams that no relay reads, with the age of the oldest message seen.",
    labels: ["stream"],
  },
  outbox_log_bytes: { kind: "gauge", help: "Size of the log with its indexes.", labels: [] },
  inbox_receipt_bytes: { kind: "gauge", help: "Size of the receipts with their indexes.", labels: [] },
  inbox_failed_records: {
    kind: "gauge",
    help: "Receipts of failed attempts that were not made good. Left out where only a long count could tell.",
    labels: ["consumer"],
  },
  txbox_figures_duration_seconds: { kind: "gauge", help: "How long the last look at the store took.", labels: [] },
} as const;

/** What the store tells of itself, whichever processes run. It comes from one place: the exporter. */
export const FIGURES_METRICS: Twins & Readonly<Record<keyof typeof OTHERS, Gauge>> = { ...TWINS, ...OTHERS };

/** Shown though the store is away. */
export const UP_METRICS = {
  txbox_up: { kind: "gauge", help: "1 when the last look at the store succeeded, else 0 and no figures.", labels: [] },
  txbox_figures_age_seconds: {
    kind: "gauge",
    help: "How old the figures shown here are; absent when there are none.",
    labels: [],
  },
} as const;
