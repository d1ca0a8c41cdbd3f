import type { ConsumerInfo, MessageReceipt, ReceiptInfo, ReceiptQuery } from "../../core/contracts.ts";
import { furthest } from "../shared/furthest-receipt.ts";
import { receiptInfo } from "./audit-reads.ts";
import type { Tables } from "./mongodb-names.ts";
import { failedReceipts, storageOf } from "./store-figures.ts";
import type { Table } from "./table.ts";

/** Receipts have no index by status: failed ones are counted while there are no more receipts than this. */
const COUNTED_RECEIPTS = 20_000;

/** A consumer that keeps receipts per source does so under names of its own: no other name has an @. */
const consumerOf = (holder: string): string => holder.split("@", 1)[0]!;

/** From one name to the next by the index: however many receipts there are. */
async function holders(inbox: Table): Promise<string[]> {
  const names: string[] = [];
  for (let after: string | undefined; ;) {
    // An object comes behind every text, so this is past all ids of the name before.
    const later = after === undefined ? {} : { _id: { $gt: { consumer: after, message_id: {} } } };
    const next = await inbox.findOne(later, { sort: { _id: 1 }, projection: { _id: 1 } });
    const name = (next?.["_id"] as { consumer?: unknown } | undefined)?.consumer;
    if (typeof name !== "string") return names;
    names.push((after = name));
  }
}

export async function readReceiptsOf({ inbox }: Tables, messages: ReceiptQuery["messages"]): Promise<MessageReceipt[]> {
  const ids = [...new Set(messages.map(({ id }) => id))];
  const found = new Map<string, Map<string, ReceiptInfo>>();
  for (const holder of await holders(inbox)) {
    const wanted = ids.map((id) => ({ consumer: holder, message_id: id }));
    for (const row of await inbox.find({ _id: { $in: wanted } })) {
      const { message_id: id } = row["_id"] as { message_id: string };
      const known = found.get(id) ?? new Map<string, ReceiptInfo>();
      const consumer = consumerOf(holder);
      found.set(id, known.set(consumer, furthest(known.get(consumer), receiptInfo(row))));
    }
  }
  return ids.flatMap((id) =>
    [...(found.get(id) ?? [])]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([consumer, receipt]) => ({ id, consumer, ...receipt })),
  );
}

/** Names by the index of receipts and by samples; the newest id of a name tells when it last received something. */
export async function readConsumers(tables: Tables): Promise<ConsumerInfo[]> {
  const last = new Map<string, Date | undefined>();
  const note = (name: string, at: unknown) => {
    const before = last.get(consumerOf(name));
    const isLater = at instanceof Date && (before === undefined || at > before);
    last.set(consumerOf(name), isLater ? at : before);
  };
  for (const consumer of await holders(tables.inbox)) {
    const own = { _id: { $gt: { consumer, message_id: "" }, $lt: { consumer, message_id: {} } } };
    const newest = await tables.inbox.findOne(own, { sort: { _id: -1 }, projection: { received_at: 1 } });
    note(consumer, newest?.["received_at"]);
  }
  for (const [consumer, at] of await sampled(tables.samples)) note(consumer, at);
  const isCounted = (await storageOf(tables.inbox)).count <= COUNTED_RECEIPTS;
  const failures = isCounted ? await failedReceipts(tables) : undefined;
  const failed = (name: string) =>
    failures?.filter(({ consumer }) => consumerOf(consumer) === name).reduce((sum, { count }) => sum + count, 0) ??
    null;
  return [...last]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([consumer, at]) => ({ consumer, lastReceivedAt: at ?? null, failed: failed(consumer) }));
}

/** The last sample of every consumer of this day, from one name to the next. */
async function sampled(samples: Table): Promise<[consumer: string, at: unknown][]> {
  const found: [string, unknown][] = [];
  for (let after: string | undefined; ;) {
    const later = { part: "consumer", name: { $gt: after ?? "" } };
    const next = await samples.findOne(later, { sort: { part: 1, name: 1, at: 1 }, hint: "txbox_samples" });
    const name = next?.["name"];
    if (typeof name !== "string") return found;
    const options = { sort: { part: -1, name: -1, at: -1 }, hint: "txbox_samples" };
    const last = await samples.findOne({ part: "consumer", name }, options);
    found.push([name, last?.["at"]]);
    after = name;
  }
}
