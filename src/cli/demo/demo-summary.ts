import { formatMs, plural } from "../format-values.ts";
import type { DemoStory } from "./demo-story.ts";
import type { Reconciliation } from "./reconcile.ts";

export interface DemoSummary extends Reconciliation {
  readonly everyOrderPaidOnce: boolean;
  readonly rolledBack: { readonly orders: number; readonly messages: number };
  readonly killedRelay: { readonly delivered: number; readonly settled: number; readonly takenOverAfterMs: number };
  readonly deliveries: number;
  readonly failedAttempts: number;
  readonly duplicatesDropped: number;
  readonly deadLetters: number;
  readonly requeued: number;
  readonly ms: number;
}

/** The last chapter: what the modules' own tables say. */
export function tellBooks(story: DemoStory, summary: DemoSummary): void {
  story.chapter("The books");
  const { deliveries, failedAttempts, duplicatesDropped } = summary;
  story.say(
    `The payment module got ${plural(deliveries, "delivery", "deliveries")}: ${plural(failedAttempts, "failed attempt")}, ` +
      `${plural(duplicatesDropped, "repeat")} dropped by the inbox, ${deliveries - failedAttempts - duplicatesDropped} that took effect.`,
  );
  const rows: [string, number][] = [
    ["orders", summary.orders],
    ["payments", summary.payments],
    ["orders not paid", summary.unpaidOrders],
    ["orders paid more than once", summary.ordersPaidMoreThanOnce],
    ["payments without an order", summary.paymentsWithoutOrder],
    ["wrong amounts", summary.wrongAmounts],
    ["payments of a customer out of order", summary.paymentsOutOfOrder],
  ];
  story.table(rows, [
    { title: "asked of the two modules' own tables", value: ([what]) => what },
    { title: "count", align: "right", value: ([, n]) => n },
  ]);
  const good = summary.everyOrderPaidOnce;
  story.verdict(
    good,
    good
      ? `Every order was paid exactly once. (${formatMs(summary.ms)})`
      : "NOT every order was paid exactly once: this is a bug in txbox.",
  );
}
