import { plainArray, type SqlRunner } from "../postgres-client.ts";
import { DURABLE, FENCE, fenced, LEASE, SOUND, type Cursor } from "../postgres-cursor.ts";
import type { Names } from "../postgres-names.ts";
import type { AnchorFigures } from "./decoded-transactions.ts";
import { formatLsn, parseLsn, type Lsn } from "./pgoutput.ts";
import type { Snapshot } from "./snapshot.ts";
import { publicationSql, SERVER } from "./wal-slot.ts";

interface Statement {
  readonly text: string;
  readonly params: (string | null)[];
}

/** What the marks of anchors begin with, in the server's log. */
export const MARK_PREFIX = "txbox";

/**
 * The token of an anchor, written into the server's log by the anchor itself: once it has come by the stream, so has all
 * that `next` shows. Other relays write marks of their own.
 */
const MARK = `pg_catalog.pg_logical_emit_message(false, '${MARK_PREFIX}', $5::text)`;

/** Writes a mark, and gives where it ends: a place that every stream reaches as soon as the server has sent it. */
export async function endOfLog(sql: SqlRunner): Promise<Lsn> {
  const [row] = await sql.query(`select pg_catalog.pg_logical_emit_message(false, '${MARK_PREFIX}', '')::text`);
  return parseLsn(row![0]!);
}

const mine = (): string => `${fenced(1, 2, 3)} and c.cur is null and ${SOUND}`;
const given = ({ id, fence, seq }: Cursor): string[] => [id, fence, String(seq)];

/**
 * The first anchor of a stream: a snapshot of now. Gives it, and what the publication brings as of this snapshot; no row:
 * the cursor is another's.
 */
export function firstAnchor(names: Names, cursor: Cursor, lease: string, token: string): Statement {
  const publication = publicationSql("$6::text", "$7::text");
  return {
    text: `update ${names.cursor} c set seq = c.seq + 1, stamp = pg_catalog.pg_current_xact_id(), lease_until = ${LEASE("$4")},
       last_write = $5::text, next = pg_catalog.pg_current_snapshot()
     where ${mine()} returning c.next, ${publication}, ${MARK}, ${DURABLE}`,
    params: [...given(cursor), lease, token, names.message, names.publication],
  };
}

export interface Anchor {
  readonly relay: string;
  readonly lease: string;
  readonly token: string;
  /** What the cursor covers. */
  readonly covered: Snapshot;
  /** What it will cover: the snapshot of the anchor before. */
  readonly next: Snapshot;
  readonly figures: AnchorFigures;
  /** To be added to the cursor's count. */
  readonly published: number;
}

/**
 * Moves the cursor to the snapshot of the anchor before, if the log holds the messages in between that the stream has
 * brought, by their number and the sum of their positions: a stream that leaves rows out cannot move it. Gives both as the
 * log has them, the snapshot of now and what the publication brings as of it; null for these: the cursor was not moved. A
 * snapshot is never given by the client, so none of another history can be stored.
 */
export function nextAnchor(names: Names, cursor: Cursor, anchor: Anchor): Statement {
  const { relay, lease, token, covered, next, figures, published } = anchor;
  const { decoded, positions, messages, lowest, highest, upTo } = figures;
  const params: (string | null)[] = [...given(cursor), lease, token];
  const add = (value: string): string => `$${params.push(value)}::text`;
  const ends = `${add(next.text)}::pg_snapshot`;
  const audit = auditSql(names, { cursor, covered, next, ends, add });
  const publication = publicationSql(add(names.message), add(names.publication));
  const receipt =
    messages === 0
      ? ""
      : `,
   receipt as (insert into ${names.batch} (relay, upto, after, lanes, messages, prev, cur)
     select ${add(relay)}, ${highest}, ${lowest - 1n}, -1, ${messages}, ${add(covered.text)}::pg_snapshot, ${ends} from c)`;
  return {
    text: `with audit as materialized (${audit}),
   c as (update ${names.cursor} c set seq = c.seq + 1, stamp = pg_catalog.pg_current_xact_id(), lease_until = ${LEASE("$4")},
       last_write = $5::text, settled = c.settled + ${published}, prev = c.next, next = pg_catalog.pg_current_snapshot(),
       wal_lsn = ${add(formatLsn(upTo))}::pg_lsn
     from audit where ${mine()} and c.next::text = ${ends}::text and audit.n = ${decoded} and audit.positions = ${positions}
     returning c.next, ${publication} as publication, ${MARK}, ${DURABLE})${receipt}
   select audit.n, audit.positions, c.next, c.publication from audit left join c on true`,
    params,
  };
}

interface Between {
  readonly cursor: Cursor;
  readonly covered: Snapshot;
  readonly next: Snapshot;
  /** The later snapshot, in the statement. */
  readonly ends: string;
  readonly add: (value: string) => string;
}

/** How many messages the log holds between two snapshots, and the sum of their positions. */
function auditSql(names: Names, { cursor, covered, next, ends, add }: Between): string {
  const between = `select pg_catalog.count(*), pg_catalog.sum(m.position) from ${names.message} m where m.xid >= ${add(String(covered.xmax))}::xid8
      and m.xid < ${add(String(next.xmax))}::xid8 and m.position >= ${cursor.first} and pg_catalog.pg_visible_in_snapshot(m.xid, ${ends})`;
  const ran = `select pg_catalog.count(*), pg_catalog.sum(m.position) from pg_catalog.unnest(${add(plainArray(covered.running))}::xid8[]) x
      join ${names.message} m on m.xid = x and m.position >= ${cursor.first} where pg_catalog.pg_visible_in_snapshot(x, ${ends})`;
  return `select pg_catalog.sum(n) as n, coalesce(pg_catalog.sum(positions), 0) as positions
     from (${between} union all ${ran}) a (n, positions)`;
}

/** The same, asked by itself, and whether the publication brings every insert at this moment. */
export function auditOfLog(names: Names, cursor: Cursor, covered: Snapshot, next: Snapshot): Statement {
  const params: (string | null)[] = [];
  const add = (value: string): string => `$${params.push(value)}::text`;
  const ends = `${add(next.text)}::pg_snapshot`;
  const audit = auditSql(names, { cursor, covered, next, ends, add });
  const publication = publicationSql(add(names.message), add(names.publication));
  return { text: `with audit as materialized (${audit}) select n, positions, ${publication} from audit`, params };
}

/** Polling has passed the point at which the slot was made: from there on, the stream brings what the cursor does not cover. */
export function fitSlot(names: Names, cursor: Cursor, token: string, lsn: Lsn): Statement {
  return {
    text: `update ${names.cursor} c set seq = c.seq + 1, stamp = pg_catalog.pg_current_xact_id(), last_write = $4::text,
       wal_lsn = $5::text::pg_lsn
     where ${fenced(1, 2, 3)} and ${SOUND} returning ${DURABLE}`,
    params: [...given(cursor), token, formatLsn(lsn)],
  };
}

/**
 * What is visible now, as long as the cursor is this process's: nothing that was enqueued after a rewind is handed out by a
 * stream of before it. Changes of the fence are in the same snapshot. And only of the server that streams: one that has taken
 * over gives the same transaction ids to others.
 */
export function shownToOwner(names: Names, { id, fence }: Cursor, server: string): Statement {
  return {
    text: `select pg_catalog.pg_current_snapshot()::text from ${names.cursor} c
     where c.id = $1::text::bigint and ${FENCE} = $2::text and ${SERVER} = $3::text`,
    params: [id, fence, server],
  };
}

/** What an anchor has left whose answer was lost; no row: it was not written. Waits for one that is being written. */
export function writtenAnchor(names: Names, cursor: Cursor, token: string): Statement {
  return {
    text: `with c as materialized (select c.seq, c.prev, c.next, c.last_write from ${names.cursor} c
       where c.id = $1::text::bigint and ${FENCE} = $2::text for update)
     select seq, prev, next from c where last_write = $3::text`,
    params: [cursor.id, cursor.fence, token],
  };
}

export interface Noted {
  readonly token: string;
  readonly ahead: ReadonlyMap<string, string>;
  /** To be added to the cursor's count. */
  readonly published: number;
}

/** Keeps what was handed out and settled beyond the cursor, for the process that reads on from there. */
export function noteAhead(names: Names, cursor: Cursor, { token, ahead, published }: Noted): Statement {
  return {
    text: `update ${names.cursor} c set seq = c.seq + 1, stamp = pg_catalog.pg_current_xact_id(), last_write = $4::text,
       ahead = $5::text::json, settled = c.settled + ${published}
     where c.id = $1::text::bigint and ${FENCE} = $2::text and c.seq = $3::text::bigint and ${SOUND} returning ${DURABLE}`,
    params: [...given(cursor), token, JSON.stringify({ prev: cursor.prev, ids: Object.fromEntries(ahead) })],
  };
}
