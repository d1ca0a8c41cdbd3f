import type { Names } from "./postgres-names.ts";

/** The statements of the writer; every one is a single round trip. */
export interface EnqueueSql {
  /** For one message, with only the columns that have a value: each parameter costs time on both sides. */
  one(columns: readonly number[], how: OneOptions): string;
  many(how: ManyOptions): string;
  lockKey(how: Within): string;
  cancel(how: Within): string;
}

/**
 * `within`: the last parameter is the id of the transaction that the statement has to run in. In another one, or by itself,
 * it changes nothing: `lockKey`, and `many` with neither `chosen` nor `later`, then say that they have written no row; the
 * others give a row that is null.
 */
export interface Within {
  within: boolean;
}

export interface ManyOptions extends Within {
  /** The caller chose some of the ids. */
  chosen: boolean;
  /** Some are to be delivered later. */
  later: boolean;
}

export interface OneOptions {
  /** The caller chose the id. */
  chosen: boolean;
  /** The driver does not serialise JSON and bytes anew, so they need no cast. */
  sendsText: boolean;
}

/**
 * These statements run in the writer's transaction under whatever search path it has. So every function, operator and type
 * is named with its schema: no object of another role can stand in for it.
 */
const EQUALS = "operator(pg_catalog.=)";

/** The id of a transaction that is open; outside of one, of a transaction that ends with the statement. */
export const TRANSACTION_ID = "select pg_catalog.pg_current_xact_id()::pg_catalog.text";

function isWithin(parameter: number): string {
  return `pg_catalog.pg_current_xact_id()::pg_catalog.text ${EQUALS} $${parameter}::pg_catalog.text`;
}

// Column, type, array type as given. Parameters arrive as text, whatever the driver would make of the column's type.
const COLUMNS = [
  ["id", "text"],
  ["size", "integer"],
  ["lane", "smallint"],
  ["stream", "text"],
  ["type", "text"],
  ["key", "text"],
  ["aggregate_type", "text"],
  ["aggregate_id", "text"],
  ["correlation_id", "text"],
  ["headers", "json"],
  ["payload", "json"],
  ["body", "bytea"],
] as const;

/** Everything the writer gives; position, xid and created_at are the database's. */
export const columnsOfMessage: string = COLUMNS.map(([name]) => name).join(", ");
export function enqueueSql(names: Names): EnqueueSql {
  const ones = new Map<number, string>();
  const batches = new Map<number, string>();
  return {
    one(given, how) {
      const base = (how.chosen ? 1 << COLUMNS.length : 0) | (how.sendsText ? 2 << COLUMNS.length : 0);
      const mask = given.reduce((bits, column) => bits | (1 << column), base);
      let text = ones.get(mask);
      if (text === undefined) ones.set(mask, (text = oneSql(names, given, how)));
      return text;
    },
    many(how) {
      const mask = (how.chosen ? 1 : 0) | (how.later ? 2 : 0) | (how.within ? 4 : 0);
      let text = batches.get(mask);
      if (text === undefined) batches.set(mask, (text = manySql(names, how)));
      return text;
    },
    lockKey({ within }) {
      const lock = "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1::pg_catalog.text, 0))";
      return within ? `${lock} where ${isWithin(2)}` : lock;
    },
    // The id is free again: the caller may want to enqueue a new message with it.
    cancel: ({
      within,
    }) => `with gone as (delete from ${names.scheduled} where id ${EQUALS} $1::pg_catalog.text ${within ? `and ${isWithin(2)}` : ""} returning id),
        freed as (delete from ${names.enqueued_id} e using gone where e.id ${EQUALS} gone.id)
      select id from gone ${within ? `union all select null where not ${isWithin(2)}` : ""}`,
  };
}

/** `given` are indexes of COLUMNS, the first of them the id; parameters are in that order. */
function oneSql(names: Names, given: readonly number[], { chosen, sendsText }: OneOptions): string {
  const present = COLUMNS.filter((_, i) => given.includes(i));
  const into = `insert into ${names.message} (${present.map(([name]) => name).join(", ")})`;
  const casts = present.map(([, type], i) => cast(i + 1, qualified(type)));
  if (!chosen) {
    // A parameter takes the type of the procedure's, and a cast would only cost time.
    const bare = present.map(([, type], i) => (sendsText || type === arrayType(type) ? `$${i + 1}` : casts[i]));
    const args = COLUMNS.map((column) => bare[present.indexOf(column)] ?? "null");
    return `call ${names.enqueue}(${args.join(", ")})`;
  }
  return `with fresh as (insert into ${names.enqueued_id} (id) values ($1::pg_catalog.text) on conflict do nothing returning id)
    ${into} select ${casts.join(", ")} from fresh`;
}

/**
 * Positions rise in the order of the array. Chosen ids are recorded in sorted order, so that two transactions with
 * the same ids wait for each other instead of deadlocking. The database's clock decides what is later.
 */
function manySql(names: Names, { chosen, later, within }: ManyOptions): string {
  const extra = [...(chosen ? ["chosen"] : []), ...(later ? ["deliver_at"] : [])];
  const arrays = [
    ...COLUMNS.map(([, type], i) => cast(i + 1, `${qualified(arrayType(type))}[]`)),
    ...extra.map((name, i) => cast(COLUMNS.length + 1 + i, name === "chosen" ? "boolean[]" : "pg_catalog.float8[]")),
  ];
  const from = `unnest(${arrays.join(", ")}) with ordinality as i(${[columnsOfMessage, ...extra, "ord"].join(", ")})`;
  const values = COLUMNS.map(([name, type]) => valueOf(name, type)).join(", ");
  const here = isWithin(arrays.length + 1);
  const input = within ? `${from} where ${here}` : from;
  if (!chosen && !later)
    return `insert into ${names.message} (${columnsOfMessage}) select ${values} from ${input} order by ord`;

  const isNew = chosen ? `(not chosen or id ${EQUALS} any (select id from fresh))` : "true";
  const isLater = later
    ? "coalesce(pg_catalog.to_timestamp(deliver_at) operator(pg_catalog.>) pg_catalog.statement_timestamp(), false)"
    : "false";
  return `with input as materialized (select * from ${input})
    ${chosen ? `, fresh as (insert into ${names.enqueued_id} (id) select id from input where chosen order by id on conflict do nothing returning id)` : ""}
    ${
      later
        ? `, scheduled as (insert into ${names.scheduled} (${columnsOfMessage}, deliver_at) select ${values}, pg_catalog.to_timestamp(deliver_at)
            from input where ${isLater} and ${isNew} order by ord on conflict do nothing returning id)`
        : ""
    }
    , logged as (insert into ${names.message} (${columnsOfMessage}) select ${values}
        from input where not ${isLater} and ${isNew} order by ord returning id)
    select id from logged ${later ? "union all select id from scheduled" : ""}
    ${within ? `union all select null where not ${here}` : ""}`;
}

/** No text of a message is empty, so that an empty one can stand for null: with array_nulls off, NULL would be a text. */
function valueOf(name: string, type: string): string {
  if (arrayType(type) !== "text") return name;
  const given = `case when ${name} ${EQUALS} '' then null else ${name} end`;
  return type === "text" ? given : `(${given})::${qualified(type)}`;
}

/** JSON and bytes travel in text arrays and are cast row by row. */
function arrayType(type: string): string {
  return type === "json" || type === "bytea" ? "text" : type;
}

function cast(parameter: number, type: string): string {
  const text = `$${parameter}::pg_catalog.text`;
  return type === "pg_catalog.text" ? text : `${text}::${type}`;
}

/** Integers and booleans are words of the language, which no path can change. */
function qualified(type: string): string {
  return type === "integer" || type === "smallint" ? type : `pg_catalog.${type}`;
}
