import type { HandleOperation } from "../../core/events.ts";
import type { IncomingMessage } from "../../core/message.ts";
import type { Counting } from "./collect-metrics.ts";

export function listenToInboxes({ metrics, consumer: named, on }: Counting): void {
  /** Messages whose first attempt was counted: a subscriber tries again with the same object. */
  const seen = new WeakSet<IncomingMessage>();
  /** What was under way before the metrics listened was not added, and is not taken off. */
  const begun = new WeakSet<HandleOperation>();

  on("txbox:inbox:handle:start", (event) => {
    begun.add(event);
    metrics.inbox_processing_inflight.inc({ consumer: named(event.consumer) });
  });
  on("txbox:inbox:handle:end", (event) => {
    const consumer = named(event.consumer);
    // An inbox answers with a result; what throws instead is a failure.
    const { how, message, result = "failed", ms = 0 } = event;
    if (begun.has(event)) metrics.inbox_processing_inflight.dec({ consumer });
    metrics.inbox_publish_attempts_total.inc({ consumer, result });
    if (result === "processed") metrics.inbox_done_total.inc({ consumer });
    if (result === "failed") metrics.inbox_failed_total.inc({ consumer });
    if (how !== "stored" && isNews(result) && !seen.has(message)) {
      seen.add(message);
      metrics.inbox_new_total.inc({ consumer });
    }
    if (how !== "store" && isNews(result)) metrics.inbox_handler_duration_seconds.observe({ consumer }, ms / 1000);
  });

  on("txbox:subscriber:dead", ({ consumer }) => metrics.inbox_dlq_total.inc({ consumer: named(consumer) }));
  on("txbox:subscriber:outage", ({ consumer, attempt }) => {
    // The 0th: one answer to the broker was lost, and nothing is waited for.
    if (attempt > 0) metrics.inbox_circuit_open.set({ consumer: named(consumer) }, 1);
  });
  const closed = (consumer: string) => metrics.inbox_circuit_open.set({ consumer: named(consumer) }, 0);
  on("txbox:subscriber:recovered", ({ consumer }) => closed(consumer));
  on("txbox:subscriber:stopped", ({ consumer }) => closed(consumer));
  // One that was given up in an outage is not told as recovered; one that was handled and acknowledged shows it.
  on("txbox:subscriber:receive:end", ({ consumer, result }) => {
    if (result === "ended") closed(consumer);
  });
}

function isNews(result: NonNullable<HandleOperation["result"]>): boolean {
  return result !== "duplicate" && result !== "skipped";
}
