import type { MessageSearch } from "../../core/contracts.ts";
import type { Conditions } from "./conditions.ts";

type Fields = Pick<MessageSearch, "id" | "key" | "aggregateType" | "aggregateId" | "correlationId">;

/** Whether an index of the log has what is asked for. */
export function isIndexed({ id, key, aggregateId, correlationId }: Fields): boolean {
  return id !== undefined || key !== undefined || aggregateId !== undefined || correlationId !== undefined;
}

/** What the look-up index of the log holds, written as it is there: key, aggregate and correlation share one. */
function hashed(value: string): string {
  return `array[hashtext(key), hashtext(coalesce(aggregate_id, key)), hashtext(coalesce(correlation_id, key))] @> array[hashtext(${value})]`;
}

/** Conditions on what a message is about. `byIndex`: in the words of the look-up index. */
export function addLookUp(c: Conditions, query: Fields, byIndex: boolean): Conditions {
  const also = (p: string) => (byIndex ? `${hashed(p)} and ` : "");
  return (
    c
      .add(query.id, (p) => `id = ${p}`)
      .add(query.key, (p) => `${also(p)}key = ${p}`)
      .add(query.aggregateType, (p) => `aggregate_type = ${p}`)
      .add(query.aggregateId, (p) => `${also(p)}aggregate_id = ${p}`)
      // A message without a correlation of its own is the first of its chain.
      .add(query.correlationId, (p) => `(${also(p)}correlation_id = ${p} or id = ${p} and correlation_id is null)`)
  );
}
