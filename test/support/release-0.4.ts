import pg from "pg";

/** What a process tells of its source. */
const SOURCE = ", source = $7::text, wal = $8::text::boolean";

/** No edits, for statements that look for some. */
const NO_EDITS = `(select null::text as relay, null::bigint as position, null::integer as size, null::json as headers,
  null::json as payload, null::bytea as body where false)`;

/**
 * What a process of 0.4 says to the database: the statements of today without what they know of edits, groups, streams and
 * deaths by message. It does not tell which version it is of.
 */
export function poolAs04(connectionString: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString, max });
  pool.on("error", () => undefined);
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    Object.assign(client, { query: (first: unknown, ...rest: unknown[]) => query(as04(first), ...rest) });
  });
  return pool;
}

function as04(query: unknown): unknown {
  if (typeof query === "string") return textAs04(query);
  const { text, values } = query as { text?: string; values?: unknown[] };
  if (typeof text !== "string" || Object.getPrototypeOf(query) !== Object.prototype) return query;
  const newer = text.includes(SOURCE) ? 2 : text.includes("max_parked") ? 1 : 0;
  const known = newer === 0 ? values : values?.slice(0, -newer);
  const given = known?.map((value) =>
    typeof value === "string" ? value.replace(String.raw`,"\"txbox\".\"edit\""`, "") : value,
  );
  return { ...(query as object), text: textAs04(text), ...(given === undefined ? {} : { values: given }) };
}

function textAs04(text: string): string {
  return text
    .replaceAll('"txbox"."edit"', NO_EDITS)
    .replace("(relay, owner, lease_until, version, wal, max_parked)", "(relay, owner, lease_until)")
    .replace("$3::text::interval, 11, null, $4::text::integer where exists", "$3::text::interval where exists")
    .replace("bool_and(wal is not null and wal)", "bool_and(false)")
    .replace(/ deaths = case when [^]*? else c\.deaths end,/, "")
    .replace("deaths = nullif(c.deaths - array(select position::text from due), '{}'),", "")
    .replaceAll(", c.deaths", ", null::text")
    .replaceAll(", deaths", "")
    .replace("c.ahead::text", "null::text")
    .replace(SOURCE, "")
    .replaceAll("done, floor, ahead", "done, floor")
    .replace(", wal_lsn, ahead", "")
    .replace(" wal_lsn = null, ahead = null,", "")
    .replace(" wal_lsn = null,", "")
    .replace("last_error, error_group, grouped_at, errors", "last_error, errors")
    .replace('x.error, x."group", pg_catalog.clock_timestamp(),', "x.error,")
    .replace("error_group = excluded.error_group, grouped_at = excluded.grouped_at,", "");
}
