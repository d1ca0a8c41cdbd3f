/** What a process tells of its own work. It comes from its events alone, and begins at 0 with the process. */
export const PROCESS_METRICS = {
  outbox_new_total: {
    kind: "counter",
    help: "Messages enqueued by this process, duplicates left out. Their transactions may still roll back.",
    labels: ["stream"],
  },
  outbox_done_total: { kind: "counter", help: "Messages published by this process.", labels: ["relay"] },
  outbox_failed_total: {
    kind: "counter",
    help: "Messages that failed and are tried again.",
    labels: ["relay"],
  },
  outbox_dlq_total: { kind: "counter", help: "Messages that became dead letters.", labels: ["relay"] },
  outbox_publish_attempts_total: {
    kind: "counter",
    help: "Messages handed to the publisher, by what came of it: published, failed, rejected, unavailable.",
    labels: ["relay", "result"],
  },
  outbox_processing_inflight: {
    kind: "gauge",
    help: "Messages that the publisher has in hand now.",
    labels: ["relay"],
  },
  outbox_batch_duration_seconds: {
    kind: "histogram",
    help: "From the first send of a batch until every message of it has an outcome.",
    labels: ["relay"],
  },
  outbox_circuit_open: { kind: "gauge", help: "1 while the whole target is out.", labels: ["relay"] },
  outbox_routes_out: { kind: "gauge", help: "Parts of the target that are out.", labels: ["relay"] },
  outbox_full: {
    kind: "gauge",
    help: "1 while no new messages are claimed, because too many wait behind failed ones.",
    labels: ["relay"],
  },
  outbox_lanes: { kind: "gauge", help: "Lanes of the relay, of 64, that this process works on.", labels: ["relay"] },
  outbox_lease_lost_total: {
    kind: "counter",
    help: "Times that other processes took the lanes over, and what was in hand was given up.",
    labels: ["relay"],
  },
  outbox_store_errors_total: {
    kind: "counter",
    help: "Times that the database could not be used. The relay tries again.",
    labels: ["relay"],
  },
  outbox_stream_open: {
    kind: "gauge",
    help: "1 while new messages come by the stream of the database, 0 while they are looked for.",
    labels: ["relay"],
  },
  outbox_wake_up_open: {
    kind: "gauge",
    help: "1 while relays are woken by a change stream, 0 while they go on by polling alone.",
    labels: [],
  },
  inbox_new_total: {
    kind: "counter",
    help: "Messages that came to the inbox and were no duplicates. One that is delivered again counts again.",
    labels: ["consumer"],
  },
  inbox_done_total: { kind: "counter", help: "Messages processed by a handler, once each.", labels: ["consumer"] },
  inbox_failed_total: {
    kind: "counter",
    help: "Attempts that failed; the message is tried again, or becomes a dead letter.",
    labels: ["consumer"],
  },
  inbox_dlq_total: { kind: "counter", help: "Messages that became dead letters.", labels: ["consumer"] },
  inbox_publish_attempts_total: {
    kind: "counter",
    help: "Attempts by result: processed, stored, duplicate, skipped, failed, rejected, unavailable.",
    labels: ["consumer", "result"],
  },
  inbox_processing_inflight: { kind: "gauge", help: "Messages that the inbox has in hand now.", labels: ["consumer"] },
  inbox_handler_duration_seconds: {
    kind: "histogram",
    help: "Attempts of handlers, with their transactions. Duplicates and skipped messages are left out.",
    labels: ["consumer"],
  },
  inbox_circuit_open: {
    kind: "gauge",
    help: "1 while the broker, or what the handlers need, is out.",
    labels: ["consumer"],
  },
} as const;
