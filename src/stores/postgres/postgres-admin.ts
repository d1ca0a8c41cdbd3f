import type { Admin, Author, RewindTarget } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { rewindDetails, stopNote } from "../shared/change-details.ts";
import { checkedAdmin } from "../shared/checked-admin.ts";
import { listBlocked } from "./blocked-keys.ts";
import { readReceipts, readSent } from "./audit-reads.ts";
import { listChanges, noteChange } from "./changes.ts";
import { deadGroups } from "./dead-groups.ts";
import { commandDead, listDead } from "./dead-letters.ts";
import { editLetter, originalOf } from "./edits.ts";
import { readConsumers, readReceiptsOf } from "./consumers.ts";
import { findMessages } from "./find-messages.ts";
import { BY_INDEX, FIGURES, FIRST_ONLY, IN_ORDER, PlannedTransactions } from "./planned-transactions.ts";
import type { Database, SqlRunner } from "./postgres-client.ts";
import { BEGINNING, DURABLE, NEW_TOKEN, SOUND } from "./postgres-cursor.ts";
import { readSamples } from "./postgres-history.ts";
import { restoredCopy } from "./postgres-ownership.ts";
import type { Names } from "./postgres-names.ts";
import { relayFigures } from "./relay-figures.ts";
import { rewindPreview } from "./rewind-preview.ts";
import { search } from "./search.ts";
import { storeFigures, type Retention } from "./store-figures.ts";
import { dropForGood } from "./wal/wal-admin.ts";
import { databaseName, slotName } from "./wal/wal-slot.ts";
import { readWaiting } from "./waiting.ts";

export interface AdminOptions {
  database: Database;
  names: Names;
  retention: Retention;
  receiptRetentionMs: number;
}

/** Read model and admin commands over the tables. */
export function createAdmin(options: AdminOptions): Admin {
  const transactions = new PlannedTransactions(options.database, options.names);
  return checkedAdmin(adminBy(undefined, transactions, options));
}

/** An admin whose changes are noted under a name. */
function adminBy(author: Author | undefined, transactions: PlannedTransactions, options: AdminOptions): Admin {
  const { names, retention, receiptRetentionMs } = options;
  return {
    by: (other) => adminBy(other, transactions, options),
    changes: (query) => transactions.read(IN_ORDER, (reading) => listChanges(reading, names, query)),
    find: (query) => findMessages(transactions, names, query),
    search: (query) => search(transactions, names, query),
    waiting: (query) => readWaiting(transactions, names, query, noSuchRelay),
    relays: () => transactions.read(FIGURES, (reading) => relayFigures(reading, names)),
    figures: () => transactions.read(FIGURES, (reading) => storeFigures(reading, names, retention)),
    samples: (query) => transactions.read(BY_INDEX, (reading) => readSamples(reading, names, query)),
    blocked: (query) => transactions.read(IN_ORDER, (reading) => listBlocked(reading, names, query)),
    pause: (relay) => setPaused(transactions, names, relay, true, author),
    resume: (relay) => setPaused(transactions, names, relay, false, author),
    rewind: (relay, target) => rewind(transactions, names, relay, target, author),
    rewindPreview: (relay, target) => rewindPreview(transactions, names, relay, target, noSuchRelay),
    async drop(relay) {
      const slot = slotName(await databaseName(options.database), names, relay);
      // A role that may not drop it is refused before anything is changed.
      await dropForGood(options.database, names, slot);
      await transactions.write(BY_INDEX, async (sql) => {
        const rows = await sql.query(`delete from ${names.relay} where name = $1::text returning name`, [relay]);
        if (rows.length === 0) throw noSuchRelay(relay);
        await noteChange(sql, names, author, { action: "drop", relay, details: {}, count: null });
      });
      // A process that still ran may have made it anew; from now on none does.
      await dropForGood(options.database, names, slot);
    },
    dead: (query) => listDead(transactions, names, query),
    deadGroups: (query) => deadGroups(transactions, names, query),
    requeue: (choice, onProgress) => commandDead(transactions, names, "requeue", choice, author, onProgress),
    discard: (choice, onProgress) => commandDead(transactions, names, "discard", choice, author, onProgress),
    edit: (letter, change) => editLetter(transactions, names, letter, change, author),
    original: (letter) => originalOf(transactions, names, letter),
    noteStop: (redrive) =>
      transactions.write(BY_INDEX, async (sql) => void (await noteChange(sql, names, author, stopNote(redrive)))),
    sent: (query) => readSent(transactions, names, query, noSuchRelay),
    receipts: (query) => readReceipts(transactions, names, query, receiptRetentionMs),
    receiptsOf: (messages) => readReceiptsOf(transactions, names, messages),
    consumers: () => transactions.read(FIRST_ONLY, (reading) => readConsumers(reading, names)),
  };
}

function setPaused(
  transactions: PlannedTransactions,
  names: Names,
  relay: string,
  paused: boolean,
  author: Author | undefined,
): Promise<void> {
  return transactions.write(BY_INDEX, async (sql) => {
    const rows = await sql.query(
      `update ${names.relay} set paused = $2::text::boolean where name = $1::text returning name`,
      [relay, String(paused)],
    );
    if (rows.length === 0) throw noSuchRelay(relay);
    const action = paused ? "pause" : "resume";
    await noteChange(sql, names, author, { action, relay, details: {}, count: null });
  });
}

/**
 * All cursors go to the same point; owners see the new epoch, drop what they had in hand and read on from there. A point
 * in the past is an open window over all that is committed now, done up to there: what commits later comes after it,
 * however low its positions.
 */
async function rewind(
  transactions: PlannedTransactions,
  names: Names,
  relay: string,
  target: RewindTarget,
  author: Author | undefined,
): Promise<void> {
  const params = [relay];
  let done = "0";
  if (typeof target === "object") {
    done =
      "position" in target
        ? `$${params.push(String(target.position - 1n))}::text::bigint`
        : `coalesce((select min(position) - 1 from ${names.message} where created_at >= $${params.push(target.time.toISOString())}::text::timestamptz),
      (select max(position) from ${names.message}), 0)`;
  }
  const by = author?.actor === undefined ? "current_user" : `$${params.push(author.actor)}::text`;
  const prev = target === "now" ? "pg_current_snapshot()" : `'${BEGINNING}'::pg_snapshot`;
  const window =
    typeof target === "object"
      ? "cur = pg_current_snapshot(), fin = '{}', lo = 0, done = target.done"
      : "cur = null, fin = null, lo = null, done = 0";
  // What is read again must not be there twice; what cannot be read again, because its segment is gone or it lies below
  // the floor, stays where it is.
  const again = (row: string) => `${row}.relay = $1::text and ${target !== "now"} and ${row}.position > target.done
       and ${row}.position > target.floor and exists (select 1 from c) and exists (select 1 from ${names.message} m where m.position = ${row}.position)`;
  const keyOf = (row: string) => `${row}.relay = b.relay and ${row}.stream = b.stream and ${row}.solo = b.solo`;
  const text = `with target as materialized (select greatest(${done}, 0) as done,
         (select coalesce(max(floor), 0) from ${names.cursor} where relay = $1::text) as floor),
     c as (update ${names.cursor} c set prev = ${prev}, ${window}, epoch = c.epoch + 1, token = ${NEW_TOKEN}, seq = c.seq + 1, crashes = 0,
         suspect = null, suspect_crashes = 0, deaths = null, wal_lsn = null, ahead = null, stamp = pg_current_xact_id()
       from target where c.relay = $1::text and ${SOUND} returning ${DURABLE}),
     gone as (delete from ${names.parked} p using target where ${again("p")}),
     redone as (delete from ${names.delivery} v using target where ${again("v")}),
     revived as (update ${names.dead} d set state = 'requeued', command = null, blocks = false, changed_at = clock_timestamp(),
         changed_by = ${by}
       from target where d.state = 'dead' and ${again("d")}),
     freed as (delete from ${names.blocked} b using target where b.relay = $1::text and ${target !== "now"} and exists (select 1 from c)
       and not exists (select 1 from ${names.parked} p where ${keyOf("p")} and p.key = b.key and not (${again("p")}))
       and not exists (select 1 from ${names.dead} d where ${keyOf("d")} and case when d.solo = 0 then d.key else '' end = b.key
         and d.state = 'dead' and d.blocks and not (${again("d")})))
     select count(*) from c`;
  await transactions.write(BY_INDEX, async (sql) => {
    const [row] = await sql.query(text, params);
    if (row![0] === "0") {
      await requireRelay(sql, names, relay);
      throw restoredCopy();
    }
    // Behind it: the snapshot of the windows must not be of a transaction that has written.
    await noteChange(sql, names, author, { action: "rewind", relay, details: rewindDetails(target), count: null });
  });
}

async function requireRelay(sql: SqlRunner, names: Names, relay: string): Promise<void> {
  const rows = await sql.query(`select 1 from ${names.relay} where name = $1::text`, [relay]);
  if (rows.length === 0) throw noSuchRelay(relay);
}

function noSuchRelay(relay: string): TxboxError {
  return new TxboxError("not_found", `There is no relay "${relay}"`, {
    field: "relay",
    fix: "List them with `txbox relays list`",
  });
}
