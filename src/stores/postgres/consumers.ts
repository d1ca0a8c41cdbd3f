import type { ConsumerInfo, MessageReceipt, ReceiptInfo, ReceiptQuery } from "../../core/contracts.ts";
import { furthest } from "../shared/furthest-receipt.ts";
import { receiptInfo, receiptsDay } from "./audit-reads.ts";
import { epochMs, finite } from "./log-message.ts";
import { BY_INDEX, type PlannedTransactions } from "./planned-transactions.ts";
import { textArray, type SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";
import { failedReceipts, sizes } from "./store-figures.ts";

/** Receipts have no index by status: failed ones are counted while all receipts together are no larger than this. */
const COUNTED_RECEIPT_BYTES = 16 * 2 ** 20;

/** A consumer that keeps receipts per source does so under names of its own: no other name has an @. */
const consumerOf = (holder: string): string => holder.split("@", 1)[0]!;

/** From one day to the next by the index, which begins with the day. */
async function receiptDays(sql: SqlRunner, names: Names): Promise<string[]> {
  const rows = await sql.query(
    `with recursive day(bucket) as (
       select min(bucket) from ${names.receipt}
       union all
       select (select min(r.bucket) from ${names.receipt} r where r.bucket > day.bucket) from day where day.bucket is not null)
     select to_char(bucket, 'YYYY-MM-DD') from day where bucket is not null`,
  );
  return rows.map(([day]) => day!);
}

/** Names with receipts of a day, one after the other by the index: however many receipts there are. */
function holdersSql(names: Names, day: string): string {
  return `with recursive holder(name) as (
       select min(consumer) from ${names.receipt} where bucket = '${day}'
       union all
       select (select min(r.consumer) from ${names.receipt} r where r.bucket = '${day}' and r.consumer > holder.name)
       from holder where holder.name is not null)`;
}

/** Day by day, since the day inside an id tells where its receipts are. */
export function readReceiptsOf(
  transactions: PlannedTransactions,
  names: Names,
  messages: ReceiptQuery["messages"],
): Promise<MessageReceipt[]> {
  const byDay = Map.groupBy(new Set(messages.map(({ id }) => id)), receiptsDay);
  return transactions.read(BY_INDEX, async (sql) => {
    const found = new Map<string, Map<string, ReceiptInfo>>();
    for (const day of await receiptDays(sql, names)) {
      const ids = byDay.get(day);
      if (ids === undefined) continue;
      const rows = await sql.query(
        `${holdersSql(names, day)}
         select r.message_id, r.status, ${epochMs(finite("r.received_at"))}, ${epochMs("r.processed_at")}, r.attempts, r.last_error, r.consumer
         from holder h join ${names.receipt} r on r.bucket = '${day}' and r.consumer = h.name and r.message_id = any ($1::text::text[])`,
        [textArray(ids)],
      );
      for (const row of rows) {
        const [id, consumer] = [row[0]!, consumerOf(row[6]!)];
        const known = found.get(id) ?? new Map<string, ReceiptInfo>();
        found.set(id, known.set(consumer, furthest(known.get(consumer), receiptInfo(row))));
      }
    }
    return [...new Set(messages.map(({ id }) => id))].flatMap((id) =>
      [...(found.get(id) ?? [])]
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .map(([consumer, receipt]) => ({ id, consumer, ...receipt })),
    );
  });
}

/** Names by the index of receipts and by samples; the newest id of a name tells when it last received something. */
export async function readConsumers(sql: SqlRunner, names: Names): Promise<ConsumerInfo[]> {
  const { receiptBytes, mayReadSamples } = await sizes(sql, names);
  const last = new Map<string, number | undefined>();
  const note = (name: string, ms: string | null | undefined) => {
    const before = last.get(consumerOf(name));
    last.set(consumerOf(name), ms == null ? before : Math.max(before ?? 0, Number(ms)));
  };
  for (const day of await receiptDays(sql, names)) {
    const rows = await sql.query(
      `${holdersSql(names, day)}
       select name, (select ${epochMs(finite("r.received_at"))} from ${names.receipt} r
         where r.bucket = '${day}' and r.consumer = holder.name and r.message_id > '' order by r.message_id desc limit 1)
       from holder where name is not null`,
    );
    for (const [name, ms] of rows) note(name!, ms);
  }
  if (mayReadSamples) for (const [name, ms] of await sql.query(sampledSql(names))) note(name!, ms);
  const failures = receiptBytes > COUNTED_RECEIPT_BYTES ? null : await failedReceipts(sql, names);
  const failed = (name: string) =>
    failures?.filter(({ consumer }) => consumerOf(consumer) === name).reduce((sum, { count }) => sum + count, 0) ??
    null;
  return [...last]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([consumer, ms]) => ({
      consumer,
      lastReceivedAt: ms === undefined ? null : new Date(ms),
      failed: failed(consumer),
    }));
}

/** The last sample of every consumer of this day. */
function sampledSql(names: Names): string {
  const next = (than: string) =>
    `(select name from ${names.sample} where part = 'consumer' and ${than} order by name limit 1)`;
  return `with recursive known(name) as (
       select ${next("true")}
       union all
       select ${next("name > known.name")} from known where known.name is not null)
     select k.name, (select ${epochMs("s.at")} from ${names.sample} s where s.part = 'consumer' and s.name = k.name order by s.at desc limit 1)
     from known k where k.name is not null`;
}
