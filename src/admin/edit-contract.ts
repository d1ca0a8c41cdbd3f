import { NewerVersionError, readPayload } from "../core/check-payload.ts";
import { isJsonType } from "../core/codec.ts";
import type { LetterEdit } from "../core/contracts.ts";
import { PermanentError, TxboxError } from "../core/errors.ts";
import type { Contracts } from "../core/event-map.ts";
import type { Headers, Message } from "../core/message.ts";
import { preparedEdit } from "../stores/shared/prepared-edit.ts";

/** A consumer that stores what it receives keeps it in a stream of its own. */
const STORED = "inbox.";

/**
 * Throws `invalid_payload` for an edit that the handler of the message would refuse. What has no contract here passes, and
 * so does a version that is not known here: its own process checks it.
 */
export function requireFittingEdit(
  contracts: Contracts | undefined,
  letter: Pick<Message, "type" | "stream" | "headers" | "body">,
  change: LetterEdit,
): void {
  const contract = contracts?.get(letter.type);
  if (contract === undefined || (letter.stream !== contract.stream && !letter.stream.startsWith(STORED))) return;
  const edit = preparedEdit(letter, change);
  const headers = JSON.parse(edit.headers) as Headers;
  const isSame = edit.body === letter.body && headers.schemaVersion === letter.headers.schemaVersion;
  if (isSame || typeof edit.body !== "string" || !isJsonType(headers.contentType)) return;
  try {
    readPayload(contract, headers, JSON.parse(edit.body));
  } catch (error) {
    if (error instanceof NewerVersionError) return;
    if (!(error instanceof PermanentError)) throw error;
    throw new TxboxError("invalid_payload", error.message, {
      field: error.field ?? "payload",
      fix: "Correct it: its handler would make it a dead letter again",
      ...(error.issues === undefined ? {} : { issues: error.issues }),
      cause: error,
    });
  }
}
