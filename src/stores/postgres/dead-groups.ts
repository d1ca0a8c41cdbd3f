import type { DeadGroup, DeadGroupQuery } from "../../core/contracts.ts";
import { errorGroup } from "../../core/error-group.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { mergedGroups, type FoundGroup } from "../shared/merged-groups.ts";
import { Conditions } from "./conditions.ts";
import { dateOf, epochMs } from "./log-message.ts";
import { IN_ORDER, type PlannedTransactions } from "./planned-transactions.ts";
import { plainArray, textArray, type Row, type SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** So many letters are counted one by one; of more, some of each group. */
const COUNTED = 300_000;
const AT_LEAST_COUNTED = 100;
const MOST_GROUPS = 10_000;
/** Letters of older relays have no group: so many are looked at. */
const UNGROUPED = 5000;
/** Keys are in the rows themselves, not in the index. */
const KEYS_OF_GROUP = 1000;
const KEYS_IN_ALL = 10_000;
/** How many letters get their group in one statement. */
const PART = 1000;

/** Groups by their index, which has all that is counted: the rows of letters are read for what is shown only. */
export function deadGroups(
  transactions: PlannedTransactions,
  names: Names,
  query: DeadGroupQuery,
): Promise<DeadGroup[]> {
  return transactions.read(IN_ORDER, async (sql) => {
    const found = (await countAll(sql, names, query)) ?? (await countSome(sql, names, query));
    const { groups, more } = await ungrouped(sql, names, query);
    const merged = mergedGroups(found, groups, more).slice(0, query.limit ?? DEFAULT_PAGE);
    return described(sql, names, merged);
  });
}

function conditions({ relay, stream, type }: DeadGroupQuery): Conditions {
  return new Conditions()
    .add(relay, (p) => `relay = ${p}`)
    .add(stream, (p) => `stream = ${p}`)
    .add(type, (p) => `type = ${p}`)
    .and("state = 'dead'");
}

/** Undefined: there are too many letters. */
async function countAll(sql: SqlRunner, names: Names, query: DeadGroupQuery): Promise<FoundGroup[] | undefined> {
  const c = conditions(query).and("error_group is not null");
  const rows = await sql.query(
    `select relay, error_group, count(*), ${epochMs("min(died_at)")}, ${epochMs("max(died_at)")}, max(position)
     from (select relay, error_group, position, died_at from ${names.dead} ${c.where}
       order by relay, error_group, position limit ${COUNTED + 1}) d group by relay, error_group`,
    c.params,
  );
  const total = rows.reduce((sum, row) => sum + Number(row[2]), 0);
  return total > COUNTED ? undefined : rows.map((row) => foundGroup(row, false));
}

/** Each group is found from the one before it, and some of its letters are counted. */
async function countSome(sql: SqlRunner, names: Names, query: DeadGroupQuery): Promise<FoundGroup[]> {
  const c = conditions(query).and("error_group is not null");
  const next = (than: string) =>
    `(select relay, error_group from ${names.dead} ${c.where} and ${than} order by relay, error_group limit 1)`;
  const known = await sql.query(
    `with recursive g as (
       select relay, error_group from ${next("true")} first
       union all
       select n.relay, n.error_group from g cross join lateral ${next("(relay, error_group) > (g.relay, g.error_group)")} n)
     select relay, error_group from g limit ${MOST_GROUPS}`,
    c.params,
  );
  const most = Math.max(AT_LEAST_COUNTED, Math.floor(COUNTED / known.length));
  const [relays, groups] = [0, 1].map((i) => c.parameter(textArray(known.map((row) => row[i]!))));
  const rows = await sql.query(
    `select g.relay, g.error_group, d.count, d.first, d.last,
       (select position from ${names.dead} ${c.where} and relay = g.relay and error_group = g.error_group order by position desc limit 1)
     from unnest(${relays}::text[], ${groups}::text[]) g (relay, error_group)
     cross join lateral (select count(*) as count, ${epochMs("min(died_at)")} as first, ${epochMs("max(died_at)")} as last
       from (select died_at from ${names.dead} ${c.where} and relay = g.relay and error_group = g.error_group
         order by position limit ${most + 1}) d) d`,
    c.params,
  );
  return rows.map((row) => foundGroup(row, Number(row[2]) > most));
}

function foundGroup([relay, group, count, first, last, position]: Row, estimated: boolean): FoundGroup {
  return {
    relay: relay!,
    group: group!,
    count: Number(count),
    estimated,
    firstDiedAt: dateOf(first!)!,
    lastDiedAt: dateOf(last!)!,
    position: BigInt(position!),
  };
}

/** Letters of relays that write no group, in groups. */
async function ungrouped(
  sql: SqlRunner,
  names: Names,
  query: DeadGroupQuery,
): Promise<{ groups: FoundGroup[]; more: boolean }> {
  const c = conditions(query).and("error_group is null");
  const rows = await sql.query(
    `select relay, type, last_error, ${epochMs("died_at")}, position from ${names.dead} ${c.where}
     order by position, relay limit ${UNGROUPED + 1}`,
    c.params,
  );
  const groups = rows.slice(0, UNGROUPED).map(([relay, type, error, at, position]) => {
    const diedAt = dateOf(at!)!;
    const group = errorGroup(type!, error!);
    const place = { relay: relay!, group, position: BigInt(position!) };
    return { ...place, count: 1, estimated: false, firstDiedAt: diedAt, lastDiedAt: diedAt };
  });
  return { groups, more: rows.length > UNGROUPED };
}

/** Groups with what is in the rows of their newest letters, and the number of their keys where those are few. */
async function described(sql: SqlRunner, names: Names, groups: readonly FoundGroup[]): Promise<DeadGroup[]> {
  if (groups.length === 0) return [];
  const list = [
    textArray(groups.map(({ relay }) => relay)),
    plainArray(groups.map(({ position }) => position)),
    textArray(groups.map(({ group }) => group)),
    plainArray(keyLimits(groups)),
  ];
  const rows = await sql.query(
    `select d.stream, d.type, d.last_error, d.id, case when g.keys > 0 then (
         select count(distinct k.key) from (select key from ${names.dead} k
           where k.relay = g.relay and k.error_group = g.error_group and k.state = 'dead' order by k.position limit g.keys) k) end
     from unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::int[]) with ordinality g (relay, position, error_group, keys, nth)
     cross join lateral (select stream, type, last_error, id from ${names.dead} d where d.relay = g.relay and d.position = g.position) d
     order by nth`,
    list,
  );
  return rows.map(([stream, type, error, id, keys], i) => {
    const { relay, group, position, count, estimated, firstDiedAt, lastDiedAt } = groups[i]!;
    const example = { position, relay, stream: stream!, id: id! };
    const described = { group, relay, stream: stream!, type: type!, error: error!, count, estimated };
    return { ...described, firstDiedAt, lastDiedAt, keys: keys == null ? null : Number(keys), example };
  });
}

/** Of how many letters of each group the keys are counted; 0: of none. */
function keyLimits(groups: readonly FoundGroup[]): number[] {
  let left = KEYS_IN_ALL;
  return groups.map(({ count, estimated, mixed }) => {
    if (estimated || mixed === true || count > Math.min(left, KEYS_OF_GROUP)) return 0;
    left -= count;
    return count;
  });
}

/** Gives letters of older relays their group; how many there were. Fewer than `most`: none is left. */
export async function fillGroups(transactions: PlannedTransactions, names: Names, most: number): Promise<number> {
  let count = 0;
  for (let after: Row | undefined; count < most;) {
    const place = after === undefined ? ["0", ""] : [after[1]!, after[0]!];
    const rows = await transactions.read(IN_ORDER, (sql) =>
      sql.query(
        `select relay, position, type, last_error, ${epochMs("died_at")} from ${names.dead}
         where state = 'dead' and error_group is null and (position, relay) > ($1::text::bigint, $2::text)
         order by position, relay limit ${Math.min(PART, most - count)}`,
        place,
      ),
    );
    if (rows.length === 0) return count;
    const columns = [
      textArray(rows.map((row) => row[0]!)),
      plainArray(rows.map((row) => row[1]!)),
      textArray(rows.map((row) => errorGroup(row[2]!, row[3]!))),
      textArray(rows.map((row) => row[3]!)),
    ];
    // Only of the death that was looked at.
    await transactions.write(IN_ORDER, (sql) =>
      sql.query(
        `update ${names.dead} d set error_group = g.error_group
         from unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::text[]) g (relay, position, error_group, last_error)
         where d.relay = g.relay and d.position = g.position and d.error_group is null and d.last_error = g.last_error`,
        columns,
      ),
    );
    count += rows.length;
    after = rows.at(-1);
  }
  return count;
}
