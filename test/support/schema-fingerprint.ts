import type pg from "pg";

type Querying = Pick<pg.Pool, "query">;

/**
 * Everything the catalogs say about a schema, as lines of text. Segments come and go: all of them are one table here, which
 * has a line twice where they differ.
 */
export async function schemaFingerprint(pool: Querying, schema = "txbox"): Promise<string[]> {
  const { rows } = await pool.query<{ line: string }>(FINGERPRINT, [schema]);
  return [...new Set(rows.map(({ line }) => line.replaceAll(/\bmessage_\d+/g, "message_N")))].toSorted();
}

const FINGERPRINT = `
with relation as (
  select c.oid, c.relname, c.relkind, c.relacl, c.reloptions from pg_class c
  join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind in ('r', 'p', 'v')
)
select format('%s %s acl=%s options=%s', relkind, relname, relacl, reloptions) as line from relation
union all
select format('column %s.%s %s notnull=%s identity=%s default=%s', r.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attidentity, pg_get_expr(d.adbin, d.adrelid))
  from relation r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
union all
select format('index of %s: %s primary=%s valid=%s part=%s options=%s', r.relname,
    regexp_replace(pg_get_indexdef(x.indexrelid), '^.* USING', 'USING'), x.indisprimary, x.indisvalid, i.relispartition, i.reloptions)
  from relation r join pg_index x on x.indrelid = r.oid join pg_class i on i.oid = x.indexrelid
union all
select format('indexes of %s: %s', r.relname, count(*)) from relation r join pg_index x on x.indrelid = r.oid group by r.oid, r.relname
union all
select format('constraint of %s: %s valid=%s', r.relname, pg_get_constraintdef(k.oid), k.convalidated)
  from relation r join pg_constraint k on k.conrelid = r.oid
union all
select format('trigger of %s: %s', r.relname, pg_get_triggerdef(t.oid)) from relation r join pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
union all
select format('view %s: %s', relname, pg_get_viewdef(oid)) from relation where relkind = 'v'
union all
select format('routine %s acl=%s', pg_get_functiondef(p.oid), p.proacl)
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1
union all
select format('applied %s %s', version, name) from txbox.migration`;
