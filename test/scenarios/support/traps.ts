import type pg from "pg";

/** Types that statements of txbox give to functions and operators, and those that are close to them. */
const TYPES =
  `text, varchar, name, "char", bigint, integer, smallint, boolean, double precision, real, numeric, timestamptz,
  timestamp, date, interval, json, jsonb, bytea, uuid, oid, regclass, xid, xid8, pg_snapshot, pg_lsn, tid,
  text[], bigint[], smallint[], integer[], xid8[], oid[]`.split(/,\s*/);
const OPERATORS = ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "||", "~", "~~", "!~~", "&", ">>", "<<", "@>", "->"];
/** Those that the grammar does not know as words of its own. */
const NAMED_TYPES = [
  "text",
  "json",
  "jsonb",
  "bytea",
  "xid8",
  "date",
  "float8",
  "pg_snapshot",
  "timestamptz",
  "regclass",
];

export const SPRUNG = /trap sprung/;

export interface TrapOptions {
  /** Names of functions. Overloads of each take what those of pg_catalog take, and other types in its place. */
  functions: readonly string[];
  /** Only functions that take exactly what those of pg_catalog take. */
  exact?: boolean;
  operators?: boolean;
  types?: boolean;
}

/** A schema "evil", owned by a role that may do nothing else. Whatever calls one of its objects fails with SPRUNG. */
export async function setTraps(admin: pg.Pool, role: string, options: TrapOptions): Promise<number> {
  const { functions, exact = false, operators = false, types = false } = options;
  const client = await admin.connect();
  try {
    await client.query(`create schema evil authorization ${role}; grant usage on schema evil to public`);
    await client.query(`set role ${role}`);
    await client.query("begin");
    if (operators) await client.query(OPERATOR_TRAPS);
    await client.query(exact ? EXACT : OVERLOADS);
    const { rows } = await client.query<{ traps: number }>("select pg_temp.set_traps($1, $2) as traps", [
      functions,
      TYPES,
    ]);
    for (const type of types ? NAMED_TYPES : []) {
      await client.query(`create function evil.sprung_${type}(pg_catalog.${type}) returns boolean language plpgsql as
        $$ begin raise exception 'trap sprung: type ${type}'; end $$`);
      await client.query(`create domain evil.${type} as pg_catalog.${type} check (evil.sprung_${type}(value))`);
    }
    await client.query("commit");
    await client.query("reset role");
    return rows[0]!.traps;
  } finally {
    client.release(true);
  }
}

/** Calls of functions in SQL text, by their names. */
export function calledIn(texts: Iterable<string>): string[] {
  const names = new Set<string>();
  for (const text of texts) for (const [, name] of text.matchAll(/\b([a-z_][a-z0-9_]*)\s*\(/g)) names.add(name!);
  return [...names];
}

const MAKE = `
create function pg_temp.trap(name text, types text[]) returns integer language plpgsql as $f$
begin
  execute format('create function evil.%I(%s) returns text language plpgsql as %L', name, array_to_string(types, ', '),
    format('begin raise exception %L; end', format('trap sprung: %s(%s)', name, array_to_string(types, ', '))));
  return 1;
exception when duplicate_function or invalid_function_definition or feature_not_supported then
  return 0;
end $f$;`;

/** Arguments of the functions of a name; aggregates and set-returning functions as well. */
const SIGNATURES = `select distinct p.proname::text as name, array(select format_type(t, null)
    from unnest(p.proargtypes::oid[]) with ordinality a (t, n) order by n) as types
  from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any (names)`;

const EXACT = `${MAKE}
create function pg_temp.set_traps(names text[], types text[]) returns integer language sql as $f$
  select coalesce(sum(pg_temp.trap(s.name, s.types)), 0)::integer from (${SIGNATURES}) s
$f$;`;

const OVERLOADS = `${MAKE}
create function pg_temp.set_traps(names text[], types text[]) returns integer language sql as $f$
  select coalesce(sum(pg_temp.trap(v.name, v.types)), 0)::integer from (
    with s as (${SIGNATURES})
    select s.name, s.types from s
    union
    -- One argument of another type.
    select s.name, s.types[:i - 1] || t || s.types[i + 1:] from s, generate_subscripts(s.types, 1) i, unnest($2) t
    union
    -- Every argument that may be of any type.
    select s.name, array(select case when a like 'any%array' and t not like '%[]' then t || '[]' when a like 'any%' or a = '"any"' then t else a end
      from unnest(s.types) with ordinality x (a, n) order by n) from s, unnest($2) t) v
$f$;`;

const OPERATOR_TRAPS = `do $do$
declare
  types text[] := $types;
  l text;
  r text;
  o text;
begin
  foreach l in array types loop
    foreach r in array types loop
      execute format('create function evil.operate(%s, %s) returns boolean language plpgsql as %L', l, r,
        format('begin raise exception %L; end', format('trap sprung: an operator of %s and %s', l, r)));
      foreach o in array $operators loop
        execute format('create operator evil.%s (function = evil.operate, leftarg = %s, rightarg = %s)', o, l, r);
      end loop;
    end loop;
  end loop;
end $do$`
  .replace("$types", () => literals(TYPES))
  .replace("$operators", () => literals(OPERATORS));

function literals(values: readonly string[]): string {
  return `array[${values.map((value) => `'${value}'`).join(", ")}]`;
}
