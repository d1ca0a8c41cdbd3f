import type { Author, DeadChoice, DeadFilter, DeadLetter, DeadPlace, DeadQuery } from "../../core/contracts.ts";
import { errorGroup } from "../../core/error-group.ts";
import { detailsOf } from "../shared/change-details.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { noteChange } from "./changes.ts";
import { Conditions } from "./conditions.ts";
import { fillGroups } from "./dead-groups.ts";
import { dateOf, epochMs, fieldsOf, listedColumns } from "./log-message.ts";
import { IN_ORDER, type PlannedTransactions } from "./planned-transactions.ts";
import { edited } from "./parking-sql.ts";
import { plainArray, textArray, type Row, type SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** How many letters one statement of a command marks: short enough for locks, long enough to be worth its round trips. */
const PART = 1000;

/** Letters of older relays have no group: so many are looked at for those of one. */
const LOOKED_AT = 10_000;

/** The contents of a letter (`d`) with its edit (`e`) laid over them. */
export function editedContents(names: Names, from: string): string {
  const own =
    "relay, position, state, command, attempts, last_error, errors, died_at, error_group, created_at, lane, id";
  const more = "stream, type, key, aggregate_type, aggregate_id, correlation_id, blocks, solo";
  const kept = `${own}, ${more}`.split(", ").map((column) => `d.${column}`);
  const other = ["headers", "payload", "body", "size"].map((column) => `${edited(column, "d")} as ${column}`);
  return `select ${[...kept, ...other].join(", ")}, e.position is not null as edited from (${from}) d
    left join lateral (select * from ${names.edit} e where e.relay = d.relay and e.position = d.position) e on true`;
}

/** A page of dead letters by position and relay. An index gives them in this order, so that a page costs what is on it. */
export async function listDead(
  transactions: PlannedTransactions,
  names: Names,
  query: DeadQuery,
): Promise<DeadLetter[]> {
  const { limit = DEFAULT_PAGE } = query;
  const found: DeadLetter[] = [];
  let { after } = query;
  for (let looked = 0; looked < LOOKED_AT;) {
    const { group, ...others } = query;
    const c = conditions(others, query.state ?? "dead", after);
    const ordered = (and: string) =>
      `(select * from ${names.dead} ${c.where} ${and} order by position, relay limit ${limit})`;
    const page =
      group === undefined
        ? ordered("")
        : `${ordered(`and error_group = ${c.parameter(group)}`)} union all ${ordered("and error_group is null")}
           order by position, relay limit ${limit}`;
    const rows = await transactions.read(IN_ORDER, (sql) =>
      sql.query(
        `select ${listedColumns(query.contents)}, relay, state, command, attempts, last_error, ${query.contents === false ? "'[]'" : "errors"}, ${epochMs("died_at")}, error_group, edited
         from (${editedContents(names, page)}) d order by position, relay`,
        c.params,
      ),
    );
    const letters = rows.map(letterOf);
    found.push(...letters.filter(({ group }) => query.group === undefined || group === query.group));
    // Without a group to look for, a page is what was asked for.
    if (query.group === undefined || rows.length < limit || found.length >= limit) break;
    looked += rows.length;
    after = letters.at(-1);
  }
  return found.slice(0, limit);
}

function letterOf(row: Row): DeadLetter {
  const fields = fieldsOf(row);
  return {
    ...fields,
    position: BigInt(row[0]!),
    relay: row[14]!,
    state: row[15] as DeadLetter["state"],
    command: row[16] as DeadLetter["command"],
    attempts: Number(row[17]),
    lastError: row[18]!,
    errors: JSON.parse(row[19]!) as DeadLetter["errors"],
    diedAt: dateOf(row[20]!)!,
    group: row[21] ?? errorGroup(fields.type, row[18]!),
    edited: row[22] === "t",
  };
}

/**
 * Marks dead letters for the owner of their lanes, part by part in the order of their positions, so that those of a key
 * are never marked out of order. A letter that was carried out meanwhile is left alone. All parts are one change, whose
 * count is written with each of them.
 */
export async function commandDead(
  transactions: PlannedTransactions,
  names: Names,
  what: "requeue" | "discard",
  choice: DeadChoice,
  author: Author | undefined,
  onProgress?: (count: number) => void,
): Promise<number> {
  // What has no group yet would be left out.
  if (choice.group !== undefined) await fillGroups(transactions, names, Number.POSITIVE_INFINITY);
  const { limit: most = Number.POSITIVE_INFINITY } = choice;
  const change = { action: what, relay: choice.relay ?? null, details: detailsOf(choice, author) } as const;
  let noted: string | undefined;
  let count = 0;
  let after: Pick<DeadPlace, "position" | "relay"> | undefined;
  while (count < most) {
    const part = Math.min(PART, most - count);
    const marked = await transactions.write(IN_ORDER, async (sql) => {
      const row = await markPart(sql, names, what, { ...choice, limit: part }, author, after);
      const note = { ...change, count: Number(row[0]) };
      return { row, noted: note.count === 0 ? noted : await noteChange(sql, names, author, note, noted) };
    });
    noted = marked.noted;
    const [told, chosen, position, relay] = marked.row;
    if (chosen === "0") break;
    count += Number(told);
    onProgress?.(count);
    if (Number(chosen) < part) break;
    after = { position: BigInt(position!), relay: relay! };
  }
  return count;
}

/** How many letters were marked, how many were found, and the place of the last one. */
async function markPart(
  sql: SqlRunner,
  names: Names,
  what: "requeue" | "discard",
  choice: DeadChoice,
  author: Author | undefined,
  after: Pick<DeadPlace, "position" | "relay"> | undefined,
): Promise<Row> {
  const c = conditions(choice, "dead", after);
  const { letters } = choice;
  const rows =
    letters === undefined
      ? names.dead
      : `(select d.* from unnest(${c.parameter(textArray(letters.map(({ relay }) => relay)))}::text[],
            ${c.parameter(plainArray(letters.map(({ position }) => position)))}::bigint[]) as l (relay, position)
          cross join lateral (select * from ${names.dead} d where d.relay = l.relay and d.position = l.position offset 0) d offset 0) d`;
  const by = author?.actor === undefined ? "current_user" : c.parameter(author.actor);
  const [row] = await sql.query(
    `with chosen as materialized (select relay, position from ${rows} ${c.where} order by position, relay limit ${choice.limit}),
     told as (update ${names.dead} d set command = '${what}', changed_at = clock_timestamp(), changed_by = ${by}
       from chosen x where d.relay = x.relay and d.position = x.position and d.state = 'dead' returning 1)
     select (select count(*) from told), (select count(*) from chosen), last.position, last.relay
     from (select 1) one left join (select * from chosen order by position desc, relay desc limit 1) last on true`,
    c.params,
  );
  return row!;
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
    .add(filter.group, (p) => `error_group = ${p}`)
    .and(`state = '${state}'`);
  if (after === undefined) return c;
  const [position, relay] = [`${c.parameter(String(after.position))}::bigint`, c.parameter(after.relay)];
  // Said twice: the first serves the index of one relay, the second tells letters of one position apart.
  return c.and(`position >= ${position}`).and(`(position, relay) > (${position}, ${relay})`);
}
