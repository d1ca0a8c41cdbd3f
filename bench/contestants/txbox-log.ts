import type { ClientBase } from "pg";
import { withClient } from "../lib/with-client.ts";

/** Columns that the log fills by itself. */
const OWN = ["position", "xid", "created_at"];
/** Messages per transaction of the copy. */
const CHUNK = 1000;

/** Copies the messages in the log, on the server, until there are so many; each copy gets an id of its own. */
export async function multiplyLog(url: string, messages: number): Promise<void> {
  await withClient(url, async (client) => {
    await client.query("set synchronous_commit = off");
    await client.query("create table seed as select * from txbox.message order by position limit $1::int", [CHUNK]);
    const restoreIndexes = await dropIndexes(client);
    await client.query(`do $do$
      declare have bigint; size bigint;
      begin
        select count(*) into have from txbox.message;
        while have < ${messages} loop
          size := least(${messages} - have, ${CHUNK});
          execute $sql$${await copyStatement(client)}$sql$ using have, size;
          have := have + size;
          commit;
        end loop;
      end $do$`);
    await restoreIndexes();
    await client.query("drop table seed");
    await client.query("vacuum analyze txbox.message");
    // As in a system that has run for a while: what was written long ago is on disk.
    await client.query("checkpoint");
  });
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

/** A million rows are in several times as fast when the indexes besides the primary key are made afterwards. */
async function dropIndexes(client: ClientBase): Promise<() => Promise<void>> {
  const { rows } = await client.query<{ name: string; definition: string }>(
    `select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition from pg_index
     where indrelid = 'txbox.message'::regclass and not indisunique`,
  );
  for (const { name } of rows) await client.query(`drop index ${name}`);
  return async () => {
    await client.query("set maintenance_work_mem = '256MB'");
    for (const { definition } of rows) await client.query(definition.replace(" ON ONLY ", " ON "));
  };
}

/** Shaped like UUIDv7 and rising like it. */
function idSql(n: string): string {
  return `lpad(to_hex(${n}), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(${n}), 12, '0')`;
}
