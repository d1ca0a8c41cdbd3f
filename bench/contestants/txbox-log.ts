import type { ClientBase } from "pg";
import { orderSql } from "../lib/payload.ts";
import { shapedSql } from "../lib/shapes.ts";
import type { Shape } from "../lib/shapes.ts";
import { withClient } from "../lib/with-client.ts";

/** Columns that the log fills by itself. */
const OWN = ["position", "xid", "created_at"];
/** Messages per transaction of the copy. */
const CHUNK = 1000;

/** Copies the messages in the log, on the server, until there are so many; each copy gets an id of its own. */
export async function multiplyLog(url: string, messages: number): Promise<void> {
  await withClient(url, async (client) => {
    await client.query("create table seed as select * from txbox.message order by position limit $1::int", [CHUNK]);
    const { rows } = await client.query<{ have: string }>("select count(*) as have from txbox.message");
    const have = Number(rows[0]?.have);
    const middle = Math.max(have, Math.ceil(messages / 2));
    const copy = await copyStatement(client);
    const indexes = await dropIndexes(client);
    await inParallel(url, [copyLoop(copy, have, middle), copyLoop(copy, middle, messages)]);
    await inParallel(url, indexes);
    await client.query("drop table seed");
    await client.query("vacuum analyze txbox.message");
  });
}

/** Messages of many keys, as a log has them that has been written to for long. */
export async function ageLog(url: string, messages: number, shape: Shape): Promise<void> {
  const [key, aggregate, correlation] = shapedSql(shape, "n");
  await withClient(url, async (client) => {
    const indexes = await dropIndexes(client);
    await client.query(
      `insert into txbox.message (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload)
       select ${idSql("n")}, 270, n % 64, 'orders', 'order_created', ${key}, 'order', ${aggregate}, ${correlation},
         '{"schemaVersion":1}', ${orderSql("n")} from generate_series(1, $1::bigint) n`,
      [messages],
    );
    await inParallel(url, indexes);
    await client.query("vacuum analyze txbox.message");
  });
}

/** Two at a time: the client has nothing to do meanwhile. */
async function inParallel(url: string, statements: readonly string[]): Promise<void> {
  const waiting = [...statements];
  const work = (): Promise<void> =>
    withClient(url, async (client) => {
      await client.query("set synchronous_commit = off; set maintenance_work_mem = '256MB'");
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await client.query(next);
    });
  await Promise.all([work(), work()]);
}

function copyLoop(copy: string, from: number, to: number): string {
  return `do $do$
    declare have bigint := ${from}; size bigint;
    begin
      while have < ${to} loop
        size := least(${to} - have, ${CHUNK});
        execute $sql$${copy}$sql$ using have, size;
        have := have + size;
        commit;
      end loop;
    end $do$`;
}

async function copyStatement(client: ClientBase): Promise<string> {
  const { rows } = await client.query<{ name: string }>(
    `select column_name as name from information_schema.columns
     where table_schema = 'txbox' and table_name = 'message' and column_name <> all ($1)`,
    [OWN],
  );
  const columns = rows.map(({ name }) => name);
  const values = columns.map((name) => (name === "id" ? idSql("$1 + row_number() over ()") : name));
  return `insert into txbox.message (${columns.join(", ")}) select ${values.join(", ")} from seed limit $2`;
}

/**
 * Drops all indexes besides the primary key and gives the statements that make them anew: a million rows are in several
 * times as fast that way.
 */
async function dropIndexes(client: ClientBase): Promise<string[]> {
  const { rows } = await client.query<{ name: string; definition: string }>(
    `select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition from pg_index
     where indrelid = 'txbox.message'::regclass and not indisunique`,
  );
  for (const { name } of rows) await client.query(`drop index ${name}`);
  return rows.map(({ definition }) => definition.replace(" ON ONLY ", " ON "));
}

/** Shaped like UUIDv7 and rising like it. */
function idSql(n: string): string {
  return `lpad(to_hex(${n}), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(${n}), 12, '0')`;
}
