import { withClient } from "../lib/with-client.ts";

/** Columns that the log fills by itself. */
const OWN = ["position", "xid", "created_at"];
/** Messages per transaction of the copy. */
const CHUNK = 1000;

/** Copies the messages in the log, on the server, until there are so many; each copy gets an id of its own. */
export async function multiplyLog(url: string, messages: number): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query<{ name: string }>(
      `select column_name as name from information_schema.columns
       where table_schema = 'txbox' and table_name = 'message' and column_name <> all ($1) and is_generated = 'NEVER'`,
      [OWN],
    );
    const columns = rows.map(({ name }) => name);
    const values = columns.map((name) => (name === "id" ? idSql("$1 + row_number() over ()") : name));
    await client.query("set synchronous_commit = off");
    await client.query("create table seed as select * from txbox.message order by position limit $1::int", [CHUNK]);
    const copy = `insert into txbox.message (${columns.join(", ")}) select ${values.join(", ")} from seed limit $2`;
    await client.query(`do $do$
      declare have bigint; want bigint := ${messages};
      begin
        select count(*) into have from txbox.message;
        while have < want loop
          execute $sql$${copy}$sql$ using have, least(want - have, ${CHUNK});
          have := have + least(want - have, ${CHUNK});
          commit;
        end loop;
      end $do$`);
    await client.query("drop table seed");
    await client.query("vacuum analyze txbox.message");
    // As in a system that has run for a while: no commit is left for the first reader to look up.
    await client.query("checkpoint");
  });
}

/** Shaped like UUIDv7 and rising like it. */
function idSql(n: string): string {
  return `lpad(to_hex(${n}), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(${n}), 12, '0')`;
}
