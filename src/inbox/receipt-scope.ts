import { createHash } from "node:crypto";
import type { Ledger, ReceiptScope } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import type { IncomingMessage } from "../core/message.ts";
import { textOrNull } from "../core/text-or-null.ts";

const MAX_SOURCE_BYTES = 200;

/** The name under which a consumer keeps the receipt of a message. No consumer's own name has an @. */
export function receiptHolder(consumer: string, scope: ReceiptScope, message: IncomingMessage): string {
  if (scope === "consumer") return consumer;
  // Without a broker there is no foreign sender: the stream comes from the own store.
  const source = message.source ?? message.stream ?? "";
  const short = source === "" ? "" : textOrNull(source, MAX_SOURCE_BYTES);
  return `${consumer}@${short ?? `sha256:${createHash("sha256").update(source, "utf16le").digest("hex")}`}`;
}

/** Throws when the consumer has counted in the other way before: it would forget what it has seen. */
export async function requireScope(ledger: Ledger<never>, consumer: string, scope: ReceiptScope): Promise<void> {
  const kept = (await ledger.keepScope?.(consumer, scope)) ?? "consumer";
  if (kept === scope) return;
  throw new TxboxError(
    "invalid_option",
    kept === "source"
      ? `The consumer ${consumer} has receipts per source, and would forget them`
      : `The consumer ${consumer} has receipts that count for every source, and would forget them`,
    {
      field: "receiptScope",
      fix: `${kept === "source" ? 'Set receiptScope: "source"' : "Leave receiptScope out"}, or give the consumer another name`,
    },
  );
}
