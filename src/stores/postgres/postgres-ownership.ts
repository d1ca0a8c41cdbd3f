import { LANES } from "../../core/lane.ts";
import { TxboxError } from "../../core/errors.ts";
import { epochMs, finite, type LogMessage } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { plainArray, textArray } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import {
  BEGINNING,
  CURSOR_COLUMNS,
  cursorOf,
  DURABLE,
  FENCE,
  fenced,
  LEASE,
  NEW_TOKEN,
  SOUND,
  SEGMENT_SIZE,
  suspectsIn,
} from "./postgres-cursor.ts";
import type { LaneView } from "../../lanes/lane-port.ts";
import { rowSecurity } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";

export interface CursorView {
  id: string;
  owner: string | null;
  /** How long it has been free, in ms; negative while a lease runs. */
  freeMs: number | null;
  restored: boolean;
  fence: string;
  /** A bigint. */
  seq: string;
  lanes: number[];
}

/** What a process sees of its relay when it looks around. */
export interface RelayView {
  exists: boolean;
  paused: boolean;
  streams: string[] | null;
  standby: boolean;
  /** The server's timeline; null on a standby. */
  timeline: string | null;
  /** Tables whose rows row-level security may hide from this role. */
  hidden: string[];
  members: string[];
  /** Every one of them can read a stream, and wants to. */
  allStream: boolean;
  cursors: CursorView[];
  /** Dead letters of this process's lanes with a command to carry out. */
  commands: boolean;
  /** Time until the next scheduled message is due, in ms. */
  scheduledInMs: number | null;
}

/** Tables of which a relay has to see all rows. */
const READ_TABLES = [
  "message",
  "kept_message",
  "scheduled",
  "relay",
  "cursor",
  "lane",
  "member",
  "blocked",
  "parked",
  "dead",
  "edit",
] as const;

/** The schema that this process knows. An older process delivers no edits, and gets no lanes where there are some. */
const KNOWN_VERSION = 11;

/** What an integer column can say. */
const MOST_PARKED = 2_147_483_647;

/** What every change of owner writes: nothing of the one before, or of an earlier load, takes effect afterwards. */
const NEXT_OWNER = `epoch = c.epoch + 1, token = ${NEW_TOKEN}, seq = c.seq + 1, stamp = pg_catalog.pg_current_xact_id()`;
/** How far a cursor has come. */
const PROGRESS = "prev, cur, fin, lo, done, floor, ahead";
/** The message that was last tried alone, and what owners died with. */
const SUSPECTS = "suspect, suspect_crashes, deaths";
/** Counts the death of an owner, unless that one gave the cursor away: for its lanes, and for what it had in hand. */
const crashesAfter = (owner: string): string => `c.crashes + case when ${owner} is null then 0 else 1 end`;
const suspectCrashesAfter = (owner: string): string =>
  `c.suspect_crashes + case when ${owner} is null or coalesce(c.suspect, 0) <= 0 then 0 else 1 end`;
/** The same in what is known of every message; `deaths` has one that was tried alone from the start. */
const deathsAfter = (
  owner: string,
): string => `case when ${owner} is not null and c.suspect > 0 and c.deaths -> c.suspect::text is not null
    then pg_catalog.jsonb_set(c.deaths, array[c.suspect::text, 'deaths'], pg_catalog.to_jsonb((c.deaths -> c.suspect::text ->> 'deaths')::integer + 1))
    else c.deaths end`;
/** The new owner does not have it in hand yet. */
const PUT_DOWN = "-pg_catalog.abs(c.suspect)";
/** Deaths are remembered where the lane of the message is, and nowhere else: what is settled there is forgotten for good. */
const deathsIn = (deaths: string, lanes: string): string =>
  `(select pg_catalog.jsonb_object_agg(d.key, d.value) from pg_catalog.jsonb_each(${deaths}) d where (d.value ->> 'lane')::smallint ${lanes})`;
/** The message that was last tried alone is of one of these lanes. */
const suspectIn = (lanes: string): string =>
  `coalesce((c.deaths -> pg_catalog.abs(c.suspect)::text ->> 'lane')::smallint ${lanes}, false)`;

export interface OwnershipOptions {
  relay: string;
  owner: string;
  leaseMs: number;
  maxParked: number;
  /** This process can read a stream, and wants to. */
  streams: boolean;
}

/** How new messages come to a process that wants to stream, shown to processes of the same relay and to people. */
export interface Source {
  readonly description: string;
  readonly isAble: boolean;
}

/** A cursor with what other sources left beside it. */
export interface EnteredCursor extends Cursor {
  /** The token of the last settle that was written. */
  lastWrite: string;
  /** Messages beyond `prev` that are settled already: ids by position. */
  ahead: ReadonlyMap<string, string>;
}

/** Who owns which lanes: every statement here raises or checks the epoch, so that no old settle lands afterwards. */
export class PostgresOwnership {
  readonly #sql: SqlRunner;
  readonly #names: Names;
  readonly #relay: string;
  readonly #owner: string;
  readonly #lease: string;
  readonly #maxParked: number;
  readonly #streams: boolean;

  constructor(sql: SqlRunner, names: Names, { relay, owner, leaseMs, maxParked, streams }: OwnershipOptions) {
    this.#sql = sql;
    this.#names = names;
    this.#relay = relay;
    this.#owner = owner;
    this.#lease = `${leaseMs} ms`;
    this.#maxParked = maxParked;
    this.#streams = streams;
  }

  /** Creates the relay with its lanes and first cursor; several processes may do so at once. */
  async createRelay(start: "earliest" | "now", streams: readonly string[] | undefined): Promise<void> {
    const n = this.#names;
    await this.#sql.query(
      `with r as (insert into ${n.relay} (name, streams) values ($1::text, $2::text::text[]) on conflict do nothing returning name),
       c as (insert into ${n.cursor} (relay, prev) select name, ${start === "now" ? "pg_catalog.pg_current_snapshot()" : `'${BEGINNING}'`} from r returning id, relay)
       insert into ${n.lane} (relay, lane, cursor_id) select c.relay, l, c.id from c, pg_catalog.generate_series(0, ${LANES - 1}) l`,
      [this.#relay, streams === undefined ? null : textArray(streams)],
    );
  }

  async look(): Promise<RelayView> {
    const n = this.#names;
    const rows = await this.#sql.query(
      `select pg_catalog.json_build_object(
         'standby', pg_catalog.pg_is_in_recovery(),
         'timeline', case when not pg_catalog.pg_is_in_recovery() then pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) end,
         'hidden', (select coalesce(pg_catalog.json_agg(t), '[]') from pg_catalog.unnest($2::text::text[]) t where pg_catalog.row_security_active(t)),
         'exists', r.name is not null, 'paused', coalesce(r.paused, false), 'streams', r.streams,
         'members', (select coalesce(pg_catalog.json_agg(owner), '[]') from ${n.member} where relay = $1::text and lease_until > pg_catalog.clock_timestamp()),
         'allStream', (select coalesce(pg_catalog.bool_and(wal is not null and wal), false) from ${n.member}
             where relay = $1::text and lease_until > pg_catalog.clock_timestamp()),
         'cursors', (select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('id', c.id::text, 'owner', c.owner,
             'freeMs', ${epochMs("pg_catalog.clock_timestamp() - c.lease_until")},
             'restored', not (${SOUND}), 'fence', ${FENCE}, 'seq', c.seq::text,
             'lanes', (select coalesce(pg_catalog.json_agg(l.lane order by l.lane), '[]') from ${n.lane} l
               where l.relay = c.relay and l.cursor_id = c.id)) order by c.id), '[]')
           from ${n.cursor} c where c.relay = $1::text),
         'commands', exists (select 1 from ${n.dead} d where d.relay = $1::text and d.command is not null),
         'scheduledInMs', (select ${epochMs(`${finite("pg_catalog.min(deliver_at)")} - pg_catalog.clock_timestamp()`)} from ${n.scheduled}))
       from (select 1) one left join ${n.relay} r on r.name = $1::text`,
      [this.#relay, textArray(READ_TABLES.map((table) => n[table]))],
    );
    const view = JSON.parse(rows[0]![0]!) as RelayView;
    return view.commands ? { ...view, commands: await this.#hasCommands() } : view;
  }

  /** Asked only when there are commands of the relay: they are rare, and the plan of this costs as much as a look. */
  async #hasCommands(): Promise<boolean> {
    const n = this.#names;
    const found = await this.#sql.query(
      `select 1 from ${n.dead} d join ${n.lane} l on l.relay = d.relay and l.lane = d.lane join ${n.cursor} c on c.id = l.cursor_id
       where d.relay = $1::text and d.command is not null and c.owner = $2::text limit 1`,
      [this.#relay, this.#owner],
    );
    return found.length > 0;
  }

  /** A transaction id that this server has not reached yet was given out by another: the log is a copy. */
  async requireOwnLog(): Promise<void> {
    const { message } = this.#names;
    const ahead = await this.#sql.query(
      `select 1 where (select m.xid from ${message} m order by m.xid desc limit 1) >= pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())`,
    );
    if (ahead.length > 0) throw restoredCopy();
  }

  /**
   * Makes this process a member and loads its cursors under a new epoch, so that nothing it sent before takes effect
   * afterwards.
   */
  async enter(): Promise<EnteredCursor[]> {
    const n = this.#names;
    const rows = await this.#sql.query(
      `with me as (insert into ${n.member} (relay, owner, lease_until, version, wal, max_parked)
         select $1::text, $2::text, ${LEASE("$3")}, ${KNOWN_VERSION}, ${this.#streams ? "true" : "null"}, $4::text::integer where exists (select 1 from ${n.relay} where name = $1::text)
         on conflict (relay, owner) do update set lease_until = excluded.lease_until)
       update ${n.cursor} c set ${NEXT_OWNER}, lease_until = ${LEASE("$3")}
       where c.relay = $1::text and c.owner = $2::text and ${SOUND}
       returning ${CURSOR_COLUMNS}, coalesce((select pg_catalog.array_to_string(pg_catalog.array_agg(l.lane order by l.lane), ',')
           from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id), ''),
         (select coalesce(pg_catalog.min(s.n), 0) * ${SEGMENT_SIZE} from ${n.segment} s
           where s.horizon is null or s.horizon > pg_catalog.pg_snapshot_xmin(c.prev)), c.last_write, c.ahead::text, ${DURABLE}`,
      [this.#relay, this.#owner, this.#lease, String(Math.min(this.#maxParked, MOST_PARKED))],
    );
    const cursors = rows.map((row) => ({
      ...cursorOf(row, row[13] === "" ? [] : row[13]!.split(",").map(Number)),
      first: row[14]!,
      lastWrite: row[15]!,
      ahead: aheadOf(row[16] ?? null, row[3]!),
    }));
    cursors.sort((a, b) => Number(BigInt(a.id) - BigInt(b.id)));
    const own = cursors.filter(({ lanes }) => lanes.length > 0);
    const [first] = own;
    if (first !== undefined) await this.#tidyUp(first);
    return own;
  }

  /**
   * Lanes of a cursor go to several processes, each of which takes some: what is left of it in the end has none, and never
   * gets any. What it had counted as published counts for a cursor of this process.
   */
  async #tidyUp(own: Cursor): Promise<void> {
    const n = this.#names;
    await this.#sql.query(
      `with gone as (delete from ${n.cursor} c where c.relay = $1::text
         and (c.owner is null or c.owner = $2::text or c.lease_until < pg_catalog.clock_timestamp())
         and not exists (select 1 from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id) returning c.settled)
       update ${n.cursor} c set settled = c.settled + gone.settled, stamp = pg_catalog.pg_current_xact_id()
       from (select pg_catalog.sum(settled)::bigint as settled from gone having pg_catalog.count(*) > 0) gone
       where c.id = $3::text::bigint and ${FENCE} = $4::text and ${SOUND}`,
      [this.#relay, this.#owner, own.id, own.fence],
    );
  }

  /**
   * Renews the lease of a member and of its cursors. False when it is no member, or a cursor is another's, or has not
   * come as far as this process knows it has: a crash of the server may have lost the last settle.
   */
  async renew(cursors: readonly Cursor[], source: Source | undefined): Promise<boolean> {
    const n = this.#names;
    const rows = await this.#sql.query(
      `with me as (update ${n.member} set lease_until = ${LEASE("$3")}, source = $7::text, wal = $8::text::boolean where relay = $1::text and owner = $2::text returning 1),
       renewed as (update ${n.cursor} c set lease_until = ${LEASE("$3")}, stamp = pg_catalog.pg_current_xact_id()
         from unnest($4::text::bigint[], $5::text::text[], $6::text::bigint[]) as mine (id, fence, seq)
         where c.id = mine.id and ${FENCE} = mine.fence and c.seq >= mine.seq and c.owner = $2::text and ${SOUND}
         returning c.id, ${DURABLE})
       select (select pg_catalog.count(*) from me), (select pg_catalog.count(*) from renewed)`,
      [
        this.#relay,
        this.#owner,
        this.#lease,
        plainArray(cursors.map((c) => c.id)),
        textArray(cursors.map((c) => c.fence)),
        plainArray(cursors.map((c) => c.seq)),
        source?.description ?? null,
        source === undefined ? null : String(source.isAble),
      ],
    );
    const [member, renewed] = rows[0]!;
    return member === "1" && Number(renewed) === cursors.length;
  }

  /** Takes a cursor that is free, or whose owner let its lease run out; nothing when another process was first. */
  async take(id: string): Promise<void> {
    const n = this.#names;
    await this.#sql.query(
      `with free as (${this.#free()})
       update ${n.cursor} c set ${NEXT_OWNER}, owner = $2::text, lease_until = ${LEASE("$3")},
         crashes = ${crashesAfter("free.owner")}, suspect_crashes = ${suspectCrashesAfter("free.owner")}, deaths = ${deathsAfter("free.owner")}, suspect = ${PUT_DOWN}
       from free where c.id = free.id returning c.id, ${DURABLE}`,
      [id, this.#owner, this.#lease],
    );
  }

  /** Takes some lanes of such a cursor, with its progress; the others stay as free as they are. */
  async takeSome(id: string, lanes: readonly number[]): Promise<void> {
    const n = this.#names;
    const some = "= any ($4::text::smallint[])";
    await this.#sql.query(
      `with free as (${this.#free(`, ${suspectIn(some)} as goes, ${PUT_DOWN} as suspect,
         ${suspectCrashesAfter("c.owner")} as suspect_crashes, ${deathsAfter("c.owner")} as deaths`)}),
       c as (update ${n.cursor} c set ${NEXT_OWNER}, suspect = case when free.goes then null else c.suspect end,
           suspect_crashes = case when free.goes then 0 else c.suspect_crashes end, deaths = ${deathsIn("c.deaths", "<> all ($4::text::smallint[])")}
         from free where c.id = free.id returning c.*, ${DURABLE}),
       part as (insert into ${n.cursor} (relay, owner, epoch, token, seq, lease_until, ${PROGRESS}, crashes, ${SUSPECTS})
         select relay, $2::text, epoch, ${NEW_TOKEN}, seq, ${LEASE("$3")}, ${PROGRESS}, ${crashesAfter("c.owner")},
           case when goes then free.suspect end, case when goes then free.suspect_crashes else 0 end, ${deathsIn("free.deaths", some)}
         from c join free using (id) where exists (select 1 from ${n.lane} l
           where l.relay = c.relay and l.cursor_id = c.id and l.lane = any ($4::text::smallint[])) returning id, relay)
       update ${n.lane} l set cursor_id = part.id from part
       where l.relay = part.relay and l.cursor_id = $1::text::bigint and l.lane = any ($4::text::smallint[])`,
      [id, this.#owner, this.#lease, plainArray(lanes)],
    );
  }

  /** The cursor $1, if it may be taken. */
  #free(more = ""): string {
    return `select c.id, c.owner${more} from ${this.#names.cursor} c
         where c.id = $1::text::bigint and (c.owner is null or c.lease_until < pg_catalog.clock_timestamp()) and ${SOUND}
         for update skip locked`;
  }

  /** Splits lanes off into a cursor of their own that is free. */
  async giveSome(cursor: Cursor, lanes: readonly number[]): Promise<void> {
    const n = this.#names;
    const some = "= any ($5::text::smallint[])";
    await this.#sql.query(
      `with held as (select c.id, ${suspectIn(some)} as goes, ${SUSPECTS} from ${n.cursor} c where ${fenced(1, 2, 3)} and ${SOUND} for update),
       mine as (update ${n.cursor} c set ${NEXT_OWNER}, suspect = case when held.goes then null else c.suspect end,
           suspect_crashes = case when held.goes then 0 else c.suspect_crashes end, deaths = ${deathsIn("c.deaths", "<> all ($5::text::smallint[])")}
         from held where c.id = held.id returning c.*, ${DURABLE}),
       free as (insert into ${n.cursor} (relay, epoch, token, ${PROGRESS}, crashes, ${SUSPECTS})
         select relay, epoch, ${NEW_TOKEN}, ${PROGRESS}, crashes, case when goes then held.suspect end,
           case when goes then held.suspect_crashes else 0 end, ${deathsIn("held.deaths", some)}
         from mine join held using (id) returning id)
       update ${n.lane} l set cursor_id = free.id from free
       where l.relay = $4::text and l.cursor_id = $1::text::bigint and l.lane = any ($5::text::smallint[])`,
      [cursor.id, cursor.fence, String(cursor.seq), this.#relay, plainArray(lanes)],
    );
  }

  async give(cursor: Cursor): Promise<void> {
    await this.#sql.query(
      `update ${this.#names.cursor} c set ${NEXT_OWNER}, owner = null, lease_until = pg_catalog.clock_timestamp()
       where ${fenced(1, 2, 3)} and ${SOUND} returning ${DURABLE}`,
      [cursor.id, cursor.fence, String(cursor.seq)],
    );
  }

  /** Makes one cursor of several that stand at the same point with no window open. */
  async merge(into: Cursor, others: readonly Cursor[]): Promise<boolean> {
    const n = this.#names;
    const fences = [into, ...others];
    const rows = await this.#sql.query(
      `with held as (select c.id, c.settled, c.crashes, c.suspect, c.suspect_crashes, c.deaths from ${n.cursor} c
           join unnest($1::text::bigint[], $2::text::text[], $3::text::bigint[]) as f (id, fence, seq)
             on c.id = f.id and ${FENCE} = f.fence and c.seq = f.seq
           where c.owner = $4::text and ${SOUND} and c.cur is null and c.prev::text = $5::text and c.floor = $6::text::bigint
           for update of c),
       good as (select 1 where (select pg_catalog.count(*) from held) = ${fences.length}),
       gone as (delete from ${n.cursor} c using good where c.id = any ($7::text::bigint[]) returning c.id, c.settled),
       moved as (update ${n.lane} l set cursor_id = $8::text::bigint from good
           where l.relay = $9::text and l.cursor_id = any ($7::text::bigint[]) returning l.lane)
       update ${n.cursor} c set ${NEXT_OWNER}, wal_lsn = null,
         crashes = (select pg_catalog.max(crashes) from held),
         suspect = tried.suspect, suspect_crashes = coalesce(tried.suspect_crashes, 0),
         deaths = (select pg_catalog.jsonb_object_agg(d.key, d.value) from held, pg_catalog.jsonb_each(held.deaths) d
           join ${n.lane} l on l.lane = (d.value ->> 'lane')::smallint where l.relay = $9::text and l.cursor_id = held.id),
         settled = c.settled + (select coalesce(pg_catalog.sum(settled), 0)::bigint from gone)
       from good left join (select suspect, suspect_crashes from held where suspect > 0 order by suspect_crashes desc limit 1) tried on true
       where c.id = $8::text::bigint returning (select pg_catalog.count(*) from moved)`,
      [
        plainArray(fences.map((c) => c.id)),
        textArray(fences.map((c) => c.fence)),
        plainArray(fences.map((c) => c.seq)),
        this.#owner,
        into.prev,
        into.floor,
        plainArray(others.map((c) => c.id)),
        into.id,
        this.#relay,
      ],
    );
    return rows.length > 0;
  }

  /**
   * A fresh row for the cursor: the chain of its old versions gets long while an open transaction holds back vacuum.
   */
  async renumber(cursor: Cursor): Promise<boolean> {
    const n = this.#names;
    const columns = `relay, owner, lease_until, ${PROGRESS}, crashes, ${SUSPECTS}, settled, last_write, wal_lsn`;
    const rows = await this.#sql.query(
      `with old as (delete from ${n.cursor} c
         where ${fenced(1, 2, 3)} and ${SOUND} returning *),
       fresh as (insert into ${n.cursor} (epoch, token, seq, ${columns}) select epoch + 1, ${NEW_TOKEN}, seq + 1, ${columns} from old returning id, ${DURABLE})
       update ${n.lane} l set cursor_id = fresh.id from fresh where l.relay = $4::text and l.cursor_id = $1::text::bigint returning l.lane`,
      [cursor.id, cursor.fence, String(cursor.seq), this.#relay],
    );
    return rows.length > 0;
  }

  /**
   * Before a message is tried alone: durable, so that the next owner knows what this one had in hand. The position of a
   * message that is put down for a while is negative meanwhile. What owners died with is remembered until it is settled.
   */
  async markSuspect(cursor: Cursor, { ref, lane }: LogMessage, inHand: boolean): Promise<boolean> {
    // Processes of before 0.8 know the message that was last tried alone only.
    const known = `greatest(coalesce((deaths -> $5::text ->> 'deaths')::integer, 0),
      case when pg_catalog.abs(suspect) = $5::text::bigint then suspect_crashes else 0 end)`;
    const healthy = `case when deaths -> pg_catalog.abs(suspect)::text ->> 'deaths' = '0' then pg_catalog.abs(suspect)::text else '' end`;
    const rows = await this.#sql.query(
      `update ${this.#names.cursor} c set seq = c.seq + 1, lease_until = ${LEASE("$4")}, stamp = pg_catalog.pg_current_xact_id(),
         suspect = ${inHand ? "" : "-"}$5::text::bigint, suspect_crashes = ${known},
         deaths = coalesce(deaths - ${healthy}, '{}')
           || pg_catalog.jsonb_build_object($5::text, pg_catalog.jsonb_build_object('deaths', ${known}, 'lane', $6::text::smallint))
       where ${fenced(1, 2, 3)} and ${SOUND}
       returning suspect_crashes, deaths, ${DURABLE}`,
      [cursor.id, cursor.fence, String(cursor.seq), this.#lease, ref, String(lane)],
    );
    if (rows.length === 0) return false;
    cursor.seq++;
    cursor.suspectCrashes = Number(rows[0]![0]);
    cursor.suspects = suspectsIn(ref, cursor.suspectCrashes, rows[0]![1] ?? null);
    return true;
  }

  /** Ends the membership and frees all that is this process's, whatever it knows of it. */
  async leave(): Promise<void> {
    const n = this.#names;
    await this.#sql.query(
      `with me as (delete from ${n.member} where relay = $1::text and owner = $2::text)
       update ${n.cursor} c set ${NEXT_OWNER}, owner = null, lease_until = pg_catalog.clock_timestamp()
       where c.relay = $1::text and c.owner = $2::text and ${SOUND} returning ${DURABLE}`,
      [this.#relay, this.#owner],
    );
  }
}

/** Only for the snapshot that it was written for. */
function aheadOf(json: string | null, prev: string): ReadonlyMap<string, string> {
  if (json === null) return new Map();
  const noted = JSON.parse(json) as { prev: string; ids: Record<string, string> };
  return new Map(noted.prev === prev ? Object.entries(noted.ids) : []);
}

/** The view as the engine wants it: by lane. */
export function laneViews({ cursors }: RelayView): LaneView[] {
  return cursors.flatMap(({ owner, freeMs, lanes }) => lanes.map((lane) => ({ lane, owner, freeMs: freeMs ?? 0 })));
}

/** Refuses to work where snapshots and xids do not mean what the cursor says. */
export function requireSound(view: RelayView, relay: string): void {
  if (view.standby) {
    throw new TxboxError("standby", "This server is a standby: its snapshots omit running transactions", {
      fix: "Point the relay at the primary",
      retryable: true,
    });
  }
  requireVisible(view);
  if (!view.exists) {
    throw new TxboxError("relay_dropped", `Relay "${relay}" does not exist any more`, {
      fix: "Start it anew to create it again",
    });
  }
  if (view.cursors.some((cursor) => cursor.restored)) throw restoredCopy();
}

/** Rows that are hidden from the relay would be skipped for ever. */
export function requireVisible(view: RelayView): void {
  if (view.hidden.length > 0) throw rowSecurity(view.hidden.join(", "));
}

export function restoredCopy(): TxboxError {
  return new TxboxError(
    "restored_copy",
    "This database is a restored copy: its transaction ids are not those of the cursors",
    { fix: "Run `txbox rebase` once on this database, or `await store.rebase()`", retryable: true },
  );
}
