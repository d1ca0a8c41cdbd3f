import type { Author, LetterEdit, LetterName } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { editDetails } from "../shared/change-details.ts";
import { conflict } from "../shared/checked-admin.ts";
import { preparedEdit } from "../shared/prepared-edit.ts";
import { noteChange } from "./changes.ts";
import { Conditions } from "./conditions.ts";
import { editedContents } from "./dead-letters.ts";
import { fieldsOf, messageColumns } from "./log-message.ts";
import { BY_INDEX, type PlannedTransactions } from "./planned-transactions.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import { NEW_TOKEN, SOUND } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/**
 * Keeps other contents for a dead letter beside it; rows of the log and of letters stay as they are. The edited letter
 * is dead and has no command, and can get none meanwhile, so that every later delivery finds the edit.
 */
export function editLetter(
  transactions: PlannedTransactions,
  names: Names,
  letter: LetterName,
  change: LetterEdit,
  author: Author | undefined,
): Promise<void> {
  return transactions.write(BY_INDEX, async (sql) => {
    await keepOutOlder(sql, names, letter.relay);
    const row = await lockLetter(sql, names, letter);
    const [position, id] = [BigInt(row[0]!), row[1]!];
    const edit = preparedEdit(fieldsOf(row), change);
    const [payload, body] = typeof edit.body === "string" ? [edit.body, null] : [null, edit.body];
    await sql.query(
      `insert into ${names.edit} (relay, position, size, headers, payload, body)
       values ($1::text, $2::text::bigint, $3::text::int, $4::text::json, $5::text::json, decode($6::text, 'hex'))
       on conflict (relay, position) do update set edited_at = clock_timestamp(), size = excluded.size,
         headers = excluded.headers, payload = excluded.payload, body = excluded.body`,
      [
        letter.relay,
        String(position),
        String(edit.size),
        edit.headers === "{}" ? null : edit.headers,
        payload,
        body === null ? null : Buffer.from(body).toString("hex"),
      ],
    );
    const details = editDetails({ relay: letter.relay, id, position }, edit);
    await noteChange(sql, names, author, { action: "edit", relay: letter.relay, details, count: 1 });
  });
}

/** The letter's row as it is delivered now, with its lock. */
async function lockLetter(sql: SqlRunner, names: Names, letter: LetterName): Promise<Row> {
  const c = named(letter);
  const locked = await sql.query(
    `select position, state, command from ${names.dead} ${c.where} order by position desc limit 2 for update`,
    c.params,
  );
  const open = locked.filter(([, state]) => state === "dead");
  const [first, second] = open.length > 0 ? open : locked;
  if (first === undefined) throw noSuchLetter(letter);
  const [position, state, command] = first;
  if (second !== undefined)
    throw conflict("Several dead letters of this relay have that id", "Give the position of the one that is meant");
  if (state !== "dead")
    throw conflict(`The letter was ${state} and is not dead any more`, "Look at it again: it may have been delivered");
  if (command !== null)
    throw conflict(`The letter waits to be ${command}${command === "requeue" ? "d" : "ed"}`, COMMANDED);
  const own = new Conditions()
    .add(letter.relay, (p) => `relay = ${p}`)
    .add(position!, (p) => `position = ${p}::bigint`);
  const [row] = await sql.query(
    `select ${messageColumns()} from (${editedContents(names, `select * from ${names.dead} ${own.where}`)}) d`,
    own.params,
  );
  return row!;
}

const COMMANDED = "Wait until the relay has carried that out; edit it again should it die again";

/** The letter as it was enqueued. */
export async function originalOf(
  transactions: PlannedTransactions,
  names: Names,
  letter: LetterName,
): Promise<Message | null> {
  const c = named(letter);
  const [row] = await transactions.read(BY_INDEX, (sql) =>
    sql.query(`select ${messageColumns()} from ${names.dead} ${c.where} order by position desc limit 1`, c.params),
  );
  return row === undefined ? null : { ...fieldsOf(row), position: BigInt(row[0]!) };
}

function named({ relay, id, position }: LetterName): Conditions {
  return new Conditions()
    .add(relay, (p) => `relay = ${p}`)
    .add(id, (p) => `id = ${p}`)
    .add(position?.toString(), (p) => `position = ${p}::bigint`);
}

/** The first version of the schema whose processes know of edits. */
const KNOWS_EDITS = 10;

/**
 * Processes of an older version would deliver a letter without its edit. While one of them works, nothing is edited.
 * One whose lease is over loses its lanes, and from here on a trigger keeps older processes from taking any of this
 * relay.
 */
async function keepOutOlder(sql: SqlRunner, names: Names, relay: string): Promise<void> {
  // First the locks, then a look of its own: lanes that were being taken are seen by it.
  await sql.query(`select 1 from ${names.cursor} where relay = $1::text order by id for update`, [relay]);
  const older = `c.relay = $1::text and c.owner is not null and not exists (
    select 1 from ${names.member} m where m.relay = c.relay and m.owner = c.owner and m.version >= ${KNOWS_EDITS})`;
  const running = await sql.query(
    `select distinct c.owner from ${names.cursor} c where ${older} and c.lease_until > clock_timestamp() limit 5`,
    [relay],
  );
  if (running.length > 0) {
    const owners = running.map(([owner]) => owner).join(", ");
    throw conflict(
      `A process of relay "${relay}" runs that knows nothing of edits: ${owners}`,
      "Stop processes of versions before 0.5, then edit again",
    );
  }
  await sql.query(
    `update ${names.relay} set least_version = ${KNOWS_EDITS} where name = $1::text and least_version is null`,
    [relay],
  );
  await sql.query(
    `update ${names.cursor} c set owner = null, epoch = c.epoch + 1, token = ${NEW_TOKEN}, seq = c.seq + 1,
       crashes = c.crashes + 1, suspect_crashes = c.suspect_crashes + case when coalesce(c.suspect, 0) <= 0 then 0 else 1 end,
       stamp = pg_current_xact_id()
     where ${older} and ${SOUND}`,
    [relay],
  );
}

function noSuchLetter({ relay, id, position }: LetterName): TxboxError {
  const which = id === undefined ? `at position ${String(position)}` : `with id ${id}`;
  return new TxboxError("not_found", `Relay "${relay}" has no dead letter ${which}`, {
    field: id === undefined ? "position" : "id",
    fix: "List them with `txbox dead list`",
  });
}
