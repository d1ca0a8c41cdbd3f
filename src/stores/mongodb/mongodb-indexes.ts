import { CHANGES_MS } from "./changes.ts";
import type { Document } from "./mongodb-client.ts";
import { SAMPLES_MS } from "./mongodb-history.ts";
import type { Names } from "./mongodb-names.ts";

export interface IndexSpec extends Document {
  key: Record<string, 1 | -1>;
  name: string;
  partialFilterExpression?: Document;
  expireAfterSeconds?: number;
}

export interface IndexOptions {
  retentionMs: number;
}

const seconds = (ms: number): number => Math.max(1, Math.round(ms / 1000));
/** A sequence begins anew above the server's time, so one that rested this long is not missed. */
const SEQUENCE_REST_MS = 7 * 86_400_000;

/** Every index by collection. Those for work are partial: they hold open work only, however many documents are done. */
export function indexesOf(names: Names, { retentionMs }: IndexOptions): ReadonlyMap<string, readonly IndexSpec[]> {
  // Implied by an equality with any text, which `$type` is not.
  const present = (field: string) => ({ [field]: { $gt: "" } });
  return new Map<string, readonly IndexSpec[]>([
    [
      names.outbox,
      [
        {
          name: "txbox_ready",
          key: { waits: 1, lane: 1, position: 1, stream: 1, _id: 1 },
          partialFilterExpression: { waits: "ready" },
        },
        {
          name: "txbox_parked",
          key: { waits: 1, relay: 1, lane: 1, stream: 1, key: 1, position: 1 },
          partialFilterExpression: { waits: "parked" },
        },
        {
          name: "txbox_later",
          key: { waits: 1, lane: 1, next_retry_at: 1, position: 1 },
          partialFilterExpression: { waits: "later" },
        },
        { name: "txbox_dying", key: { waits: 1, relay: 1, lane: 1 }, partialFilterExpression: { waits: "dying" } },
        {
          name: "txbox_processing",
          key: { status: 1, lease_owner: 1, lease_until: 1 },
          partialFilterExpression: { status: "processing" },
        },
        {
          name: "txbox_done",
          key: { published_at: 1 },
          partialFilterExpression: { status: "done" },
          expireAfterSeconds: seconds(retentionMs),
        },
        // From the newest back, for those who look for messages.
        { name: "txbox_newest", key: { position: 1, _id: 1 } },
        { name: "txbox_message_id", key: { message_id: 1 }, partialFilterExpression: present("message_id") },
        { name: "txbox_key", key: { key: 1, position: 1 }, partialFilterExpression: present("key") },
        // With the id: messages of different keys may share a position, and many of them one correlation.
        {
          name: "txbox_aggregate",
          key: { aggregate_id: 1, position: 1, _id: 1 },
          partialFilterExpression: present("aggregate_id"),
        },
        {
          name: "txbox_correlation",
          key: { correlation_id: 1, position: 1, _id: 1 },
          partialFilterExpression: present("correlation_id"),
        },
      ],
    ],
    [
      names.dead,
      [
        // Dead letters page by page: of all relays, and of one.
        { name: "txbox_letters", key: { state: 1, position: 1, _id: 1 } },
        { name: "txbox_letters_of_relay", key: { state: 1, relay: 1, position: 1, _id: 1 } },
        { name: "txbox_letter_id", key: { message_id: 1 }, partialFilterExpression: present("message_id") },
        {
          name: "txbox_command",
          key: { relay: 1, command: 1, lane: 1, position: 1 },
          partialFilterExpression: { command: { $type: "string" } },
        },
        // Keys that a dead letter holds, page by page.
        {
          name: "txbox_holding",
          key: { relay: 1, lane: 1, stream: 1, key: 1, position: 1 },
          partialFilterExpression: { blocks: true },
        },
        // Letters that died of the same; and those that have no group yet.
        { name: "txbox_groups", key: { state: 1, error_group: 1, relay: 1, position: 1, died_at: 1 } },
        { name: "txbox_blocks", key: { relay: 1, blocks: 1, lane: 1 }, partialFilterExpression: { blocks: true } },
      ],
    ],
    [names.sequences, [{ name: "txbox_rest", key: { at: 1 }, expireAfterSeconds: seconds(SEQUENCE_REST_MS) }]],
    [names.inbox, [{ name: "txbox_expire", key: { expire_at: 1 }, expireAfterSeconds: 0 }]],
    [
      names.samples,
      [
        { name: "txbox_expire", key: { at: 1 }, expireAfterSeconds: seconds(SAMPLES_MS) },
        { name: "txbox_samples", key: { part: 1, name: 1, at: 1 } },
        { name: "txbox_errors", key: { last_error_at: 1 }, partialFilterExpression: present("last_error") },
      ],
    ],
    [
      names.changes,
      [
        { name: "txbox_expire", key: { at: 1 }, expireAfterSeconds: seconds(CHANGES_MS) },
        { name: "txbox_changes_of_relay", key: { relay: 1, _id: 1 } },
        { name: "txbox_run", key: { run: 1 }, partialFilterExpression: present("run") },
      ],
    ],
    [names.relays, []],
    [names.migrations, []],
  ]);
}

/** Whether an index does what is wanted of it. How long documents are kept is the operator's to change. */
export function sameIndex(found: Document | undefined, wanted: IndexSpec): boolean {
  if (found === undefined) return false;
  const shape = (index: Document) => JSON.stringify([index["key"], index["partialFilterExpression"] ?? null]);
  const expires = (index: Document) => index["expireAfterSeconds"] !== undefined;
  return shape(found) === shape(wanted) && expires(found) === expires(wanted) && found["unique"] !== true;
}
