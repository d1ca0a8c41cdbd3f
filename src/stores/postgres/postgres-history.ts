import type { Activity, History, Sample, SampleCounts, SampleQuery } from "../../core/contracts.ts";
import { SAMPLE_COUNTS } from "../../core/sample-counts.ts";
import { Conditions } from "./conditions.ts";
import { dateOf, epochMs } from "./log-message.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** Samples are kept this long. */
export const SAMPLES_MS = 86_400_000;
/** Of one sample. */
const EVERY = "interval '10 seconds'";

export function createHistory(sql: SqlRunner, names: Names): History {
  const values = SAMPLE_COUNTS.map((_, i) => `$${i + 6}::text::bigint`).join(", ");
  const text = `insert into ${names.sample} (part, name, owner, last_error, last_error_at, ${SAMPLE_COUNTS.join(", ")})
    values ($1::text, $2::text, $3::text, $4::text, pg_catalog.clock_timestamp() - $5::text::interval, ${values})`;
  return {
    async record({ of, owner, lastError, ...counts }) {
      const [part, name] = "relay" in of ? ["relay", of.relay] : ["consumer", of.consumer];
      const error = lastError === undefined ? [null, null] : [lastError.error, `${lastError.agoMs} ms`];
      await sql.query(text, [part, name, owner, ...error, ...SAMPLE_COUNTS.map((count) => String(counts[count]))]);
    },
  };
}

/** All processes of a relay or consumer together, ten seconds by ten seconds. */
export async function readSamples(sql: SqlRunner, names: Names, query: SampleQuery): Promise<Sample[]> {
  const c = new Conditions()
    .add(query.relay, (p) => `part = 'relay' and name = ${p}`)
    .add(query.consumer, (p) => `part = 'consumer' and name = ${p}`)
    .add(query.since.toISOString(), (p) => `at >= ${p}::timestamptz`)
    .add(query.until?.toISOString(), (p) => `at < ${p}::timestamptz`);
  const sums = SAMPLE_COUNTS.map((count) => `sum(${count})`).join(", ");
  const rows = await sql.query(
    `select part, name, ${epochMs("bucket")}, ${sums}, (array_agg(last_error order by last_error_at desc nulls last))[1], ${epochMs("max(last_error_at)")}
     from (select *, date_bin(${EVERY}, at, 'epoch') as bucket from ${names.sample} ${c.where} offset 0) s
     group by part, name, bucket order by bucket, part desc, name`,
    c.params,
  );
  return rows.map((row) => ({
    ...ofRow(row),
    at: dateOf(row[2]!)!,
    ...(Object.fromEntries(SAMPLE_COUNTS.map((count, i) => [count, Number(row[3 + i])])) as unknown as SampleCounts),
    lastError: row[11]!,
    lastErrorAt: dateOf(row[12]!),
  }));
}

/**
 * What every relay and consumer of this day did in the last minute, and its last error. The names are found one after the
 * other in the index: however many samples there are, only those of a minute are read.
 */
export async function readActivity(sql: SqlRunner, names: Names): Promise<Activity[]> {
  const later = (than: string) => `(select part, name from ${names.sample} where ${than} order by part, name limit 1)`;
  const rows = await sql.query(`
with recursive known as (
  select part, name from ${later("true")} first
  union all
  select next.part, next.name from known cross join lateral ${later("(part, name) > (known.part, known.name)")} next)
select k.part, k.name,
  (select coalesce(sum(published + processed), 0) from ${names.sample} s
   where s.part = k.part and s.name = k.name and s.at > statement_timestamp() - interval '1 minute'),
  e.last_error, ${epochMs("e.last_error_at")}
from known k left join lateral (select s.last_error, s.last_error_at from ${names.sample} s
  where s.part = k.part and s.name = k.name and s.last_error_at is not null order by s.last_error_at desc limit 1) e on true
order by k.part desc, k.name`);
  return rows.map((row) => ({
    ...ofRow(row),
    perSecond: Number(row[2]) / 60,
    lastError: row[3]!,
    lastErrorAt: dateOf(row[4]!),
  }));
}

function ofRow([part, name]: Row): { relay: string | null; consumer: string | null } {
  return part === "relay" ? { relay: name!, consumer: null } : { relay: null, consumer: name! };
}
