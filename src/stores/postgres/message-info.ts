import type { AttemptError, MessageInfo, MessageStatus } from "../../core/contracts.ts";
import { dateOf, epochMs, fieldsOf, finite, listedColumns, messageColumns } from "./log-message.ts";
import { init } from "./migrations/0001-init.ts";
import type { Row } from "./postgres-client.ts";
import { renameDefaults, type Names } from "./postgres-names.ts";

/** What the view `message_status` says of messages in the log, in its own words, and where it takes them from. */
const STATUS =
  /create view "txbox"\."message_status" as([^]*?)union all/.exec("sql" in init ? init.sql : "")?.[1] ?? "";
const MESSAGES = '"txbox"."all_message" m';

/** The view over other rows than those of all segments, so that no others are planned for. */
export function statusOver(names: Names, messages: string): string {
  const [columns = "", joins = ""] = STATUS.split(MESSAGES);
  return `${renameDefaults(columns, names)} (${messages}) m ${renameDefaults(joins, names)}`;
}

/** Rows at these positions, which are written out. */
export function rowsAt(table: string, positions: readonly string[]): string {
  return `select * from ${table} where position in (${positions.join(", ")})`;
}

/** Messages at these positions, be they in the log or kept beyond their segment. */
export function messagesAt(names: Names, positions: readonly string[]): string {
  const list = positions.join(", ");
  return `${rowsAt(names.message, positions)}
    union all select * from ${names.kept_message} where position in (${list})
      and position not in (select position from ${names.message} where position in (${list}))`;
}

/**
 * Messages as people see them, from a query over `message_status` that is in order and limited already. Errors with their
 * times are where a message waits, or in its dead letter: for one without an error neither is looked at.
 */
export function infoSql(names: Names, rows: string, order: string, contents = true): string {
  if (!contents)
    return `select ${listedColumns(false)}, relay, status, attempts, last_error, ${epochMs("published_at")}, ${epochMs(finite("deliver_at"))}, null
     from (${rows}) s order by ${order}`;
  return `select ${messageColumns()}, relay, status, attempts, last_error, ${epochMs("published_at")}, ${epochMs(finite("deliver_at"))},
       case when d.errors is not null or b.errors is not null then coalesce(d.errors, '[]') || coalesce(b.errors, '[]') end
     from (${rows}) s
     left join lateral (select d.errors from ${names.dead} d
       where s.last_error is not null and d.relay = s.relay and d.position = s.position) d on true
     left join lateral (select b.errors from ${names.blocked} b
       where s.last_error is not null and s.status <> 'dead' and b.relay = s.relay and b.position = s.position limit 1) b on true
     order by ${order}`;
}

/** Expressions for what a table knows of its messages, where it is no view of the log. */
export interface OwnInfo {
  relay: string;
  status: MessageStatus;
  attempts: string;
  lastError: string;
  deliverAt?: string;
}

/** The columns of a row of `infoSql` that follow those of the message, but for its errors. */
export function ownInfo({ relay, status, attempts, lastError, deliverAt }: OwnInfo): string {
  const due = deliverAt === undefined ? "null" : epochMs(finite(deliverAt));
  return `${relay}, '${status}', ${attempts}, ${lastError}, null, ${due}`;
}

export function messageInfo(row: Row): MessageInfo {
  return {
    ...fieldsOf(row),
    position: row[0] == null ? null : BigInt(row[0]),
    relay: row[14]!,
    status: row[15] as MessageStatus,
    attempts: Number(row[16]),
    lastError: row[17]!,
    errors: row[20] == null ? [] : (JSON.parse(row[20]) as AttemptError[]),
    publishedAt: dateOf(row[18]!),
    deliverAt: dateOf(row[19]!),
  };
}
