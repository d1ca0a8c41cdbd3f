import type { MessageInfo, MessageQuery } from "../../core/contracts.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { Conditions } from "./conditions.ts";
import { logSegments } from "./log-segments.ts";
import {
  addLookUp,
  byLookUpIndex,
  indexedRows,
  isHashed,
  LOOKED_AT_COLUMNS,
  segmentsWithIndex,
  topOf,
} from "./look-up.ts";
import { infoSql, messageInfo, messagesAt, statusOver } from "./message-info.ts";
import { BY_INDEX, IN_ORDER, patient, type PlannedTransactions } from "./planned-transactions.ts";
import { textArray, type SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

const ORDER = "position nulls last, relay";
/** So many messages are looked up at once. */
const CHUNK = 500;
/** Where the look-up index is not built yet, so many are walked through at once. */
const WALKED = 20_000;

/** Messages by id, key, aggregate or correlation, oldest first; what is scheduled comes last. */
export async function findMessages(
  transactions: PlannedTransactions,
  names: Names,
  query: MessageQuery,
): Promise<MessageInfo[]> {
  const { id, ids, limit = DEFAULT_PAGE } = query;
  if (!isHashed(query) || id !== undefined || ids !== undefined) {
    const c = conditionsOf(query);
    const rows = `select * from ${names.message_status} ${c.where} order by ${ORDER} limit ${limit}`;
    const found = await transactions.read(patient(BY_INDEX), (sql) =>
      sql.query(infoSql(names, rows, ORDER, query.contents), c.params),
    );
    return found.map(messageInfo);
  }
  return transactions.read(patient(IN_ORDER), async (sql) => {
    const found: MessageInfo[] = [];
    const add = async (rows: string): Promise<void> => {
      const c = conditionsOf(query);
      const limited = `select * from (${rows}) s ${c.where} order by ${ORDER} limit ${limit - found.length}`;
      found.push(...(await sql.query(infoSql(names, limited, ORDER, query.contents), c.params)).map(messageInfo));
    };
    for await (const positions of positionsOf(sql, names, query)) {
      await add(statusOver(names, messagesAt(names, positions)));
      if (found.length >= limit) return found;
    }
    await add(`select * from ${names.message_status} where position is null`);
    return found;
  });
}

function conditionsOf(query: MessageQuery): Conditions {
  return addLookUp(new Conditions(), query)
    .add(query.ids && textArray(query.ids), (p) => `id = any (${p}::text[])`)
    .add(query.stream, (p) => `stream = ${p}`)
    .add(query.relay, (p) => `relay = ${p}`);
}

/** Positions of messages that are about what is asked for, oldest first, some at a time. */
async function* positionsOf(sql: SqlRunner, names: Names, query: MessageQuery): AsyncGenerator<string[]> {
  const kept = addLookUp(new Conditions(), query);
  const outlived = await sql.query(
    `select position from ${names.kept_message} s ${kept.where} and position not in (
       select m.position from ${names.kept_message} k join ${names.message} m on m.position = k.position) order by position`,
    kept.params,
  );
  const positions = outlived.map(([position]) => position!);
  for (let at = 0; at < positions.length; at += CHUNK) yield positions.slice(at, at + CHUNK);
  const segments = (await logSegments(sql, names)).toReversed();
  const indexed = await segmentsWithIndex(sql, names, segments);
  for (const segment of segments) {
    const top = await topOf(sql, names, segment);
    if (top === undefined) continue;
    const hasIndex = indexed.has(segment.first);
    const most = hasIndex ? CHUNK : WALKED;
    let after = segment.first - 1n;
    while (after < top) {
      const c = addLookUp(new Conditions(), query);
      const rows = hasIndex
        ? indexedRows(names, query, c, { segment, top, order: "asc", most, after })
        : `select ${LOOKED_AT_COLUMNS} from ${names.message} where position > ${after} and position <= ${top} order by position`;
      const look = () =>
        sql.query(
          `with seen as materialized (${rows} limit ${most})
           select position, null from seen s ${c.where} union all select max(position), count(*) from seen`,
          c.params,
        );
      const seen = await (hasIndex ? byLookUpIndex(sql, look) : look());
      // Another value may have the same hash: what was seen counts.
      const last = seen.find(([, count]) => count != null)!;
      const found = seen.flatMap((row) => (row === last ? [] : [row[0]!]));
      for (let at = 0; at < found.length; at += CHUNK) yield found.slice(at, at + CHUNK);
      after = Number(last[1]) < most ? top : BigInt(last[0]!);
    }
  }
}
