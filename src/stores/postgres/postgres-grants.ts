import { columnsOfMessage } from "./enqueue-sql.ts";
import { quote, type Names, type TableName } from "./postgres-names.ts";

/** Names of existing roles. One role may appear under several. */
export interface GrantRoles {
  /** Applications that enqueue. */
  writer?: string;
  /** Applications with an inbox. */
  consumer?: string;
  /** Relay processes and the commands for relays and dead letters. */
  relay?: string;
  /** The role that migrates, rotates segments and drops old ones. */
  maintainer?: string;
  /** The role that sees everything and changes nothing: the calls of `admin` that only read. */
  viewer?: string;
}

/** What a relay does to each table; what belongs to a relay that is dropped goes with it by the rights of the owner. */
const RELAY: Partial<Record<TableName, string>> = {
  message: `select, insert (${columnsOfMessage}, created_at)`,
  all_message: "select",
  message_status: "select",
  segment: "select",
  // Rows are locked before they are moved, which takes the right to update a column; this one cannot be updated.
  scheduled: "select, update (n), delete",
  enqueued_id: "select (id), update (enqueued_at)",
  relay: "select, insert, update (paused, least_version), delete",
  cursor: "select, insert, update, delete",
  lane: "select, insert, update (cursor_id)",
  member: "select, insert, update, delete",
  blocked: "select, insert, update, delete",
  parked: "select, insert, delete",
  delivery: "select, insert, update, delete",
  dead: "select, insert, update",
  edit: "select, insert, update",
  change: "select, insert, update (count)",
  batch: "select, insert",
  kept_message: "select, insert, update (position)",
  sample: "select, insert",
};

/** The SQL that gives roles the least they need; run it as the owner of the tables. */
export function postgresGrants(names: Names, roles: GrantRoles): string {
  const statements: string[] = [];
  const grant = (what: string, on: string, role: string) =>
    statements.push(`grant ${what} on ${on} to ${quote(role)};`);
  const { writer, consumer, relay, maintainer, viewer } = roles;

  for (const role of new Set([writer, consumer, relay, viewer])) {
    if (role === undefined) continue;
    grant("usage", `schema ${names.schema}`, role);
    grant("select", names.migration, role);
  }
  if (writer !== undefined) {
    statements.push(
      "-- A writer adds messages and cannot touch those that are there; xid and position are the database's.",
    );
    grant(`insert (${columnsOfMessage}), select (id)`, names.message, writer);
    grant("execute", `procedure ${names.enqueue}`, writer);
    for (const name of [names.enqueue_v1, names.cancel_v1, names.lane_of]) grant("execute", `function ${name}`, writer);
    grant("insert (id), select (id), delete", names.enqueued_id, writer);
    grant(`insert (${columnsOfMessage}, deliver_at), select (id), delete`, names.scheduled, writer);
  }
  if (consumer !== undefined) {
    grant("select, insert, update (status, attempts, last_error, processed_at)", names.receipt, consumer);
    grant("select", names.receipt_floor, consumer);
    grant("insert", names.sample, consumer);
  }
  if (relay !== undefined) {
    for (const name of [names.no_news_until, names.settle, names.settle_batch, names.settle_once, names.about])
      grant("execute", `function ${name}`, relay);
    for (const [table, rights] of Object.entries(RELAY)) grant(rights, names[table as TableName], relay);
  }
  if (viewer !== undefined) {
    grant("execute", `function ${names.about}`, viewer);
    for (const table of [...Object.keys(RELAY), "receipt", "receipt_floor"] as TableName[])
      grant("select", names[table], viewer);
  }
  if (maintainer !== undefined) {
    statements.push(
      "-- Attaching and dropping segments needs ownership, which PostgreSQL gives by membership in the owner's role.",
    );
    statements.push(membership(names, maintainer));
  }
  return `${statements.join("\n")}\n`;
}

function membership(names: Names, role: string): string {
  const body = `declare
  owner pg_catalog.name := (select pg_catalog.pg_get_userbyid(relowner) from pg_catalog.pg_class where oid operator(pg_catalog.=) ${literal(names.message)}::pg_catalog.regclass);
begin
  if owner operator(pg_catalog.<>) ${literal(role)} then
    execute pg_catalog.format('grant %I to %I', owner, ${literal(role)});
  end if;
end`;
  return `do ${literal(body)};`;
}

function literal(text: string): string {
  return text.includes("\\")
    ? ` E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`
    : `'${text.replaceAll("'", "''")}'`;
}
