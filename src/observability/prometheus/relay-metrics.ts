import type { PublishResult } from "../../core/contracts.ts";
import type { PublishOperation } from "../../core/events.ts";
import type { Counting } from "./collect-metrics.ts";

const RESULTS = ["published", "failed", "rejected", "unavailable"] as const;
type Result = (typeof RESULTS)[number];

/** A relay over the messages that an inbox has stored is named after its stream. */
const INBOX = "inbox.";

export function listenToRelays({ metrics, relay: named, consumer, on }: Counting): void {
  const routes = new Map<string, Set<string>>();
  /** Relays that have had a stream of the database. */
  const streaming = new Set<string>();
  /** What was under way before the metrics listened was not added, and is not taken off. */
  const begun = new WeakSet<PublishOperation>();
  /** The inbox whose stored messages a relay handles. */
  const consumers = new Map<string, string>();

  const attempted = (relay: string, counts: Readonly<Record<Result, number>>): void => {
    for (const result of RESULTS) {
      if (counts[result] > 0) metrics.outbox_publish_attempts_total.inc({ relay, result }, counts[result]);
    }
  };

  on("txbox:relay:started", (event) => {
    // All begin at 0, so that the first failure is seen as a rise.
    const relay = named(event.relay);
    metrics.outbox_done_total.inc({ relay }, 0);
    metrics.outbox_failed_total.inc({ relay }, 0);
    metrics.outbox_dlq_total.inc({ relay }, 0);
    metrics.outbox_lease_lost_total.inc({ relay }, 0);
    metrics.outbox_store_errors_total.inc({ relay }, 0);
    for (const result of RESULTS) metrics.outbox_publish_attempts_total.inc({ relay, result }, 0);
    metrics.outbox_processing_inflight.inc({ relay }, 0);
    rest(event.relay);
  });

  /** Nothing is out, as far as is known. */
  const rest = (name: string): void => {
    const relay = named(name);
    routes.delete(name);
    metrics.outbox_circuit_open.set({ relay }, 0);
    metrics.outbox_routes_out.set({ relay }, 0);
    metrics.outbox_full.set({ relay }, 0);
    metrics.outbox_lanes.set({ relay }, 0);
    if (streaming.has(name)) metrics.outbox_stream_open.set({ relay }, 0);
  };
  on("txbox:relay:stopped", ({ relay }) => rest(relay));
  on("txbox:relay:failed", ({ relay }) => rest(relay));

  on("txbox:relay:publish:start", (event) => {
    const { relay, messages } = event;
    begun.add(event);
    metrics.outbox_processing_inflight.inc({ relay: named(relay) }, messages.length);
    const stream = messages[0]?.stream;
    if (stream?.startsWith(INBOX) === true) consumers.set(relay, stream.slice(INBOX.length));
  });
  on("txbox:relay:publish:end", (event) => {
    const relay = named(event.relay);
    const { counts, running } = countsOf(event);
    attempted(relay, counts);
    const wasAdded = begun.has(event);
    if (wasAdded) metrics.outbox_processing_inflight.dec({ relay }, event.messages.length - running.length);
    for (const ended of running) {
      void ended.then(({ status }) => {
        if (wasAdded) metrics.outbox_processing_inflight.dec({ relay });
        if (status !== "held") attempted(relay, { ...NONE, [status]: 1 });
      });
    }
  });

  on("txbox:relay:batch", (event) => {
    const { published, retried, dead, ms } = event;
    const relay = named(event.relay);
    if (published > 0) metrics.outbox_done_total.inc({ relay }, published);
    if (retried > 0) metrics.outbox_failed_total.inc({ relay }, retried);
    metrics.outbox_batch_duration_seconds.observe({ relay }, ms / 1000);
    if (dead === 0) return;
    metrics.outbox_dlq_total.inc({ relay }, dead);
    const inbox = consumers.get(event.relay);
    if (inbox !== undefined) metrics.inbox_dlq_total.inc({ consumer: consumer(inbox) }, dead);
  });

  on("txbox:relay:outage", ({ relay }) => metrics.outbox_circuit_open.set({ relay: named(relay) }, 1));
  on("txbox:relay:recovered", ({ relay }) => metrics.outbox_circuit_open.set({ relay: named(relay) }, 0));
  const routesOf = (relay: string): Set<string> => {
    const known = routes.get(relay) ?? new Set();
    routes.set(relay, known);
    return known;
  };
  on("txbox:relay:route_out", ({ relay, route }) =>
    metrics.outbox_routes_out.set({ relay: named(relay) }, routesOf(relay).add(route).size),
  );
  on("txbox:relay:route_back", ({ relay, route }) => {
    routesOf(relay).delete(route);
    metrics.outbox_routes_out.set({ relay: named(relay) }, routesOf(relay).size);
  });
  on("txbox:relay:full", ({ relay }) => metrics.outbox_full.set({ relay: named(relay) }, 1));
  on("txbox:relay:not_full", ({ relay }) => metrics.outbox_full.set({ relay: named(relay) }, 0));
  on("txbox:relay:lanes", ({ relay, lanes }) => metrics.outbox_lanes.set({ relay: named(relay) }, lanes));
  on("txbox:relay:lease_lost", ({ relay }) => metrics.outbox_lease_lost_total.inc({ relay: named(relay) }));
  on("txbox:relay:store_error", ({ relay }) => metrics.outbox_store_errors_total.inc({ relay: named(relay) }));
  on("txbox:relay:stream_started", ({ relay }) => {
    streaming.add(relay);
    metrics.outbox_stream_open.set({ relay: named(relay) }, 1);
  });
  on("txbox:relay:stream_lost", ({ relay }) => metrics.outbox_stream_open.set({ relay: named(relay) }, 0));
  on("txbox:store:wake_up_started", () => metrics.outbox_wake_up_open.set({}, 1));
  on("txbox:store:wake_up_lost", () => metrics.outbox_wake_up_open.set({}, 0));
}

const NONE: Readonly<Record<Result, number>> = { published: 0, failed: 0, rejected: 0, unavailable: 0 };

/** What was not sent, behind a failed one of its key, is no attempt. Nothing said of a message: the target is out. */
function countsOf({ messages, results }: PublishOperation): {
  counts: Record<Result, number>;
  running: Promise<PublishResult>[];
} {
  const counts = { ...NONE };
  const running: Promise<PublishResult>[] = [];
  if (results === undefined) counts.unavailable = messages.length;
  else {
    for (const result of results) {
      if (result === undefined) counts.unavailable++;
      else if (result.status === "running") running.push(result.ended);
      else if (result.status !== "held") counts[result.status]++;
    }
  }
  return { counts, running };
}
