import type { DeadChoice, DeadFilter, DeadLetter, DeadPlace, DeadQuery } from "../../core/contracts.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { Conditions } from "./conditions.ts";
import { dateOf, epochMs, fieldsOf, messageColumns } from "./log-message.ts";
import { IN_ORDER, type PlannedTransactions } from "./planned-transactions.ts";
import type { Names } from "./postgres-names.ts";

/** How many letters one statement of a command marks: short enough for locks, long enough to be worth its round trips. */
const PART = 1000;

/** A page of dead letters by position and relay. An index gives them in this order, so that a page costs what is on it. */
export async function listDead(
  transactions: PlannedTransactions,
  names: Names,
  query: DeadQuery,
): Promise<DeadLetter[]> {
  const c = conditions(query, query.state ?? "dead", query.after);
  const rows = await transactions.read(IN_ORDER, (sql) =>
    sql.query(
      `select ${messageColumns()}, relay, state, command, attempts, last_error, errors, ${epochMs("died_at")}
       from ${names.dead} ${c.where} order by position, relay limit ${query.limit ?? DEFAULT_PAGE}`,
      c.params,
    ),
  );
  return rows.map((row) => ({
    ...fieldsOf(row),
    position: BigInt(row[0]!),
    relay: row[14]!,
    state: row[15] as DeadLetter["state"],
    command: row[16] as DeadLetter["command"],
    attempts: Number(row[17]),
    lastError: row[18]!,
    errors: JSON.parse(row[19]!) as DeadLetter["errors"],
    diedAt: dateOf(row[20]!)!,
  }));
}

/**
 * Marks dead letters for the owner of their lanes, part by part in the order of their positions, so that those of a key
 * are never marked out of order. A letter that was carried out meanwhile is left alone.
 */
export async function commandDead(
  transactions: PlannedTransactions,
  names: Names,
  what: "requeue" | "discard",
  choice: DeadChoice,
  onProgress?: (count: number) => void,
): Promise<number> {
  const most = choice.limit ?? Number.POSITIVE_INFINITY;
  let count = 0;
  let after: Pick<DeadPlace, "position" | "relay"> | undefined;
  while (count < most) {
    const part = Math.min(PART, most - count);
    const c = conditions(choice, "dead", after);
    const [row] = await transactions.write(IN_ORDER, (sql) =>
      sql.query(
        `with chosen as materialized (select relay, position from ${names.dead} ${c.where} order by position, relay limit ${part}),
         told as (update ${names.dead} d set command = '${what}', changed_at = clock_timestamp(), changed_by = current_user
           from chosen x where d.relay = x.relay and d.position = x.position and d.state = 'dead' returning 1)
         select (select count(*) from told), (select count(*) from chosen), last.position, last.relay
         from (select 1) one left join (select * from chosen order by position desc, relay desc limit 1) last on true`,
        c.params,
      ),
    );
    const [told, chosen, position, relay] = row!;
    if (chosen === "0") break;
    count += Number(told);
    onProgress?.(count);
    if (Number(chosen) < part) break;
    after = { position: BigInt(position!), relay: relay! };
  }
  return count;
}

function conditions(
  filter: DeadFilter,
  state: DeadLetter["state"],
  after: Pick<DeadPlace, "position" | "relay"> | undefined,
): Conditions {
  const c = new Conditions()
    .add(filter.relay, (p) => `relay = ${p}`)
    .add(filter.id, (p) => `id = ${p}`)
    .add(filter.position?.toString(), (p) => `position = ${p}::bigint`)
    .add(filter.stream, (p) => `stream = ${p}`)
    .add(filter.type, (p) => `type = ${p}`)
    .add(filter.key, (p) => `key = ${p}`)
    .and(`state = '${state}'`);
  if (after === undefined) return c;
  const [position, relay] = [`${c.parameter(String(after.position))}::bigint`, c.parameter(after.relay)];
  // Said twice: the first serves the index of one relay, the second tells letters of one position apart.
  return c.and(`position >= ${position}`).and(`(position, relay) > (${position}, ${relay})`);
}
