import type { ReceiptInfo } from "../../core/contracts.ts";

export const NO_RECEIPT: ReceiptInfo = {
  status: "none",
  receivedAt: null,
  processedAt: null,
  attempts: 0,
  lastError: null,
};

const ORDER: readonly ReceiptInfo["status"][] = ["expired", "none", "failed", "received", "processed"];

/** Of two receipts of one message, by different sources: the one that got further. */
export function furthest(one: ReceiptInfo | undefined, other: ReceiptInfo): ReceiptInfo {
  return one === undefined || ORDER.indexOf(other.status) > ORDER.indexOf(one.status) ? other : one;
}
