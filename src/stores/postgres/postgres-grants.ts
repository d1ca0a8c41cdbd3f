import { columnsOfMessage } from "./enqueue-sql.ts";
import { quote, type Names } from "./postgres-names.ts";

/** Names of existing roles. One role may appear under several. */
export interface GrantRoles {
  /** Applications that enqueue. */
  writer?: string;
  /** Applications with an inbox. */
  consumer?: string;
  /** Relay processes and the commands for relays and dead letters. */
  relay?: string;
  /** Whoever migrates, rotates segments and drops old ones. */
  maintainer?: string;
}

/** The SQL that gives roles the least they need; run it as the owner of the tables. */
export function postgresGrants(names: Names, roles: GrantRoles): string {
  const statements: string[] = [];
  const grant = (what: string, on: string, role: string) =>
    statements.push(`grant ${what} on ${on} to ${quote(role)};`);
  const { writer, consumer, relay, maintainer } = roles;

  for (const role of new Set([writer, consumer, relay])) {
    if (role === undefined) continue;
    grant("usage", `schema ${names.schema}`, role);
    grant("select", names.migration, role);
  }
  if (writer !== undefined) {
    statements.push(
      "-- A writer adds messages and cannot touch those that are there; xid and position are the database's.",
    );
    grant(`insert (${columnsOfMessage}), select (position, id)`, names.message, writer);
    grant("execute", `procedure ${names.enqueue}`, writer);
    grant("insert (id), select (id), delete", names.enqueued_id, writer);
    grant(`insert (${columnsOfMessage}, deliver_at), select (id), delete`, names.scheduled, writer);
  }
  if (consumer !== undefined) {
    grant("select, insert, update", names.receipt, consumer);
    grant("select", names.receipt_floor, consumer);
  }
  if (relay !== undefined) {
    grant(`select, insert (${columnsOfMessage}, created_at)`, names.message, relay);
    for (const name of [names.no_news_until, names.settle, names.settle_batch, names.settle_once, names.about])
      grant("execute", `function ${name}`, relay);
    grant("select, delete", names.scheduled, relay);
    grant("update (enqueued_at)", names.enqueued_id, relay);
    for (const view of [names.all_message, names.message_status, names.segment, names.enqueued_id, names.receipt])
      grant("select", view, relay);
    for (const table of [
      "relay",
      "cursor",
      "lane",
      "member",
      "blocked",
      "parked",
      "delivery",
      "dead",
      "batch",
      "kept_message",
    ] as const) {
      grant("select, insert, update, delete", names[table], relay);
    }
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
  owner name := (select pg_get_userbyid(relowner) from pg_class where oid = ${literal(names.message)}::regclass);
begin
  if owner <> ${literal(role)} then
    execute format('grant %I to %I', owner, ${literal(role)});
  end if;
end`;
  return `do ${literal(body)};`;
}

function literal(text: string): string {
  return text.includes("\\")
    ? ` E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`
    : `'${text.replaceAll("'", "''")}'`;
}
