import { errorGroup } from "../../core/error-group.ts";
import { describeError } from "../../core/errors.ts";
import type { Document } from "./mongodb-client.ts";
import { presentable } from "./mongodb-document.ts";
import { areDuplicateKeys } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";

/** At most this many errors are kept per message. */
export const KEPT_ERRORS = 20;

const FIELDS = [
  "message_id",
  "stream",
  "event_type",
  "aggregate_id",
  "aggregate_type",
  "key",
  "payload",
  "payload_format",
  "headers",
  "correlation_id",
  "created_at",
  "position",
  "lane",
  "size",
  "attempts",
  "last_error",
  "errors",
] as const;

/**
 * The second half of a death: the document says `dead` already and waits as `dying`; its letter is written, then it
 * waits no more. When the first owner could not finish it, the lane's next owner does. A death has one letter, by its
 * token.
 */
export async function writeLetters(tables: Tables, relay: string, documents: readonly Document[]): Promise<void> {
  if (documents.length === 0) return;
  const letters = documents.map((document) => {
    const fields = messageFields(presentable(document));
    const error = describeError(document["last_error"]);
    const letter = {
      ...fields,
      relay,
      state: "dead",
      command: null,
      blocks: document["blocks"] === true,
      death: document["death"],
      died_at: document["died_at"],
      last_error: error,
      error_group: errorGroup(String(fields["event_type"]), error),
    };
    const filter = { _id: document["_id"], death: { $ne: document["death"] } };
    return { updateOne: { filter, update: { $set: letter }, upsert: true } };
  });
  await tables.dead.bulkWrite(letters, { ordered: false }).catch((error: unknown) => {
    // Those were written before.
    if (!areDuplicateKeys(error)) throw error;
  });
  const ids = documents.map(({ _id }) => _id);
  await tables.outbox.updateMany({ _id: { $in: ids }, waits: "dying" }, { $unset: { waits: 1 } });
}

/** What a letter and its document have in common. */
export function messageFields(document: Document): Document {
  const fields = Object.fromEntries(FIELDS.map((name) => [name, document[name]]));
  return { ...fields, position: BigInt(Number(document["position"])) };
}

/** What a document becomes when it dies. */
export function deathOf(error: string, death: string, at: Date, blocks: boolean): Document {
  return {
    $set: {
      status: "dead",
      waits: "dying",
      last_error: error,
      lease_owner: null,
      lease_until: null,
      death,
      died_at: at,
      blocks,
    },
    $unset: { alone: 1, crashes: 1 },
    $push: { errors: { $each: [{ at, error }], $slice: -KEPT_ERRORS } },
  };
}
