import type { AttemptError, MessageInfo, MessageStatus } from "../../core/contracts.ts";
import type { Document } from "./mongodb-client.ts";
import { fieldsOf, numberOr, presentable } from "./mongodb-document.ts";

const CONTENTS = ["payload", "payload_format", "headers", "errors"];

/** The last step of a read for a list: whatever may be long is left out, see `listed`. */
export function withoutContents(contents = true): Document[] {
  return contents ? [] : [{ $unset: CONTENTS }];
}

/** What is left out stands there empty. */
export function listed(row: Document): Document {
  return { ...row, payload: "", payload_format: "json", headers: {}, errors: [] };
}

/** A document of the outbox as people see it; `now` is the server's time. */
export function messageInfo(row: Document): MessageInfo {
  const document = presentable(row);
  const status = statusOf(document);
  return {
    ...fieldsOf(document),
    position: status === "scheduled" ? null : BigInt(document["position"] as number),
    relay: (document["relay"] as string | undefined) ?? null,
    status,
    attempts: numberOr(document["attempts"], 0),
    lastError: (document["last_error"] as string | null | undefined) ?? null,
    errors: errorsOf(document),
    publishedAt: (document["published_at"] as Date | undefined) ?? null,
    deliverAt: status === "scheduled" ? (document["next_retry_at"] as Date) : null,
  };
}

function statusOf({ status, waits, lease_until, now }: Document): MessageStatus {
  if (status === "done") return "published";
  if (status === "dead") return "dead";
  if (status === "failed") return "retrying";
  if (waits === "later") return "scheduled";
  return status === "processing" && (lease_until as Date) > (now as Date) ? "processing" : "pending";
}

/** A dead letter as people see its message. */
export function letterInfo(row: Document): MessageInfo {
  return {
    ...fieldsOf(presentable(row)),
    position: BigInt(numberOr(row["position"], 0)),
    relay: (row["relay"] as string | undefined) ?? null,
    status: "dead",
    attempts: numberOr(row["attempts"], 0),
    lastError: (row["last_error"] as string | null | undefined) ?? null,
    errors: errorsOf(row),
    publishedAt: null,
    deliverAt: null,
  };
}

export function errorsOf({ errors }: Document): AttemptError[] {
  if (!Array.isArray(errors)) return [];
  return (errors as ({ at?: unknown; error?: unknown } | null)[]).flatMap((one) =>
    one?.at instanceof Date ? [{ at: one.at.toISOString(), error: String(one.error) }] : [],
  );
}
