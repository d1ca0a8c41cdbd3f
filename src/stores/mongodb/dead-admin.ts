import type {
  DeadChoice,
  DeadFilter,
  DeadLetter,
  DeadPlace,
  DeadQuery,
  LetterEdit,
  LetterName,
} from "../../core/contracts.ts";
import { errorGroup } from "../../core/error-group.ts";
import { TxboxError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { detailsOf, editDetails } from "../shared/change-details.ts";
import { conflict, DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { preparedEdit, type PreparedEdit } from "../shared/prepared-edit.ts";
import type { Changes } from "./changes.ts";
import { fillGroups } from "./dead-groups.ts";
import { editUpdate, originalDocument } from "./edited-document.ts";
import { listed } from "./message-info.ts";
import type { Document } from "./mongodb-client.ts";
import { documentId, fieldsOf, numberOr } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";

/** How many letters one part of a command marks. */
const PART = 1000;
/** Letters of older relays have no group: so many are looked at for those of one. */
const LOOKED_AT = 10_000;

function deadFilter(filter: DeadFilter, state: DeadLetter["state"], group: unknown): Document {
  return given({
    state,
    relay: filter.relay,
    ...byId(filter.id),
    position: filter.position === undefined ? undefined : Number(filter.position),
    stream: filter.stream,
    event_type: filter.type,
    key: filter.key,
    error_group: filter.group === undefined ? undefined : group,
  });
}

/** An index has them in this order. Positions rise within a key only, so several letters may have the same one. */
const IN_ORDER = { position: 1, _id: 1 };

interface Place {
  position: number;
  _id: unknown;
}

/** What comes after a place. The first condition says nothing new, but an index understands it. */
function behind(place: Place | undefined): Document {
  if (place === undefined) return {};
  const { position, _id } = place;
  const later = { $or: [{ position: { $gt: position } }, { position, _id: { $gt: _id } }] };
  return { $and: [{ position: { $gte: position } }, later] };
}

function placeOf({ position, stream, id }: DeadPlace): Place {
  return { position: Number(position), _id: documentId(stream, id) };
}

export async function listDead({ dead: letters }: Tables, query: DeadQuery): Promise<DeadLetter[]> {
  const { limit = DEFAULT_PAGE, contents = true } = query;
  const left = contents ? {} : { projection: { payload: 0, payload_format: 0, headers: 0, errors: 0 } };
  const found: DeadLetter[] = [];
  let after = query.after === undefined ? undefined : placeOf(query.after);
  for (let looked = 0; looked < LOOKED_AT;) {
    const filter = deadFilter(query, query.state ?? "dead", { $in: [query.group, null] });
    const rows = await letters.find({ ...filter, ...behind(after) }, { sort: IN_ORDER, limit, ...left });
    const page = rows.map((row) => letterOf(contents ? row : listed(row)));
    found.push(...page.filter(({ group }) => query.group === undefined || group === query.group));
    if (query.group === undefined || rows.length < limit || found.length >= limit) break;
    looked += rows.length;
    after = rows.at(-1) as unknown as Place;
  }
  return found.slice(0, limit);
}

function letterOf(row: Document): DeadLetter {
  const fields = fieldsOf(row);
  const lastError = row["last_error"] as string;
  return {
    ...fields,
    position: BigInt(row["position"] as number),
    relay: row["relay"] as string,
    state: row["state"] as DeadLetter["state"],
    command: row["command"] as DeadLetter["command"],
    attempts: numberOr(row["attempts"], 0),
    lastError,
    errors: (row["errors"] as { at: Date; error: string }[]).map(({ at, error }) => ({ at: at.toISOString(), error })),
    diedAt: row["died_at"] as Date,
    group: typeof row["error_group"] === "string" ? row["error_group"] : errorGroup(fields.type, lastError),
    edited: row["edited"] === true,
  };
}

/** Marks dead letters for the owner of their lanes, part by part in order. Those carried out meanwhile are left alone. */
export async function commandDead(
  tables: Tables,
  changes: Changes,
  what: "requeue" | "discard",
  choice: DeadChoice,
  onProgress?: (count: number) => void,
): Promise<number> {
  const { dead: letters } = tables;
  if (choice.group !== undefined) await fillGroups(tables, Number.POSITIVE_INFINITY);
  const filter = deadFilter(choice, "dead", choice.group);
  const chosen = choice.letters && { _id: { $in: choice.letters.map(({ stream, id }) => documentId(stream, id)) } };
  const update = { $set: { command: what }, $currentDate: { changed_at: true } };
  const note = { action: what, relay: choice.relay ?? null, details: detailsOf(choice, changes.author) };
  const { limit: most = Number.POSITIVE_INFINITY } = choice;
  let count = 0;
  let after: Place | undefined;
  let noted: string | undefined;
  while (count < most) {
    const part = Math.min(PART, most - count);
    const where = { $and: [filter, chosen ?? {}, behind(after)] };
    const options = { sort: IN_ORDER, limit: part, projection: { position: 1 } };
    // Looked at first: what matches nothing is no change, and is not noted.
    if ((await letters.findOne(where, { projection: { _id: 1 } })) === null) break;
    const marked = await changes.make(
      note,
      async (session) => {
        const found = await letters.find(where, { ...options, ...session });
        const ids = found.map(({ _id }) => _id);
        const told = await letters.updateMany({ _id: { $in: ids }, state: "dead" }, update, { ...session });
        return { answer: { found, told: told.matchedCount }, count: told.matchedCount };
      },
      noted,
    );
    noted = marked.noted;
    const { found, told } = marked.answer;
    count += told;
    onProgress?.(count);
    if (found.length < part) break;
    after = found.at(-1) as unknown as Place;
  }
  return count;
}

/**
 * Other contents, in the letter and in the document that waits as dead: whichever relay delivers it, of whatever version,
 * finds them there. Without transactions the letter comes first, and a requeue makes the document like it.
 */
export async function editLetter(
  tables: Tables,
  changes: Changes,
  name: LetterName,
  change: LetterEdit,
): Promise<void> {
  const seen = await namedLetter(tables, name, {});
  const note = (edit: PreparedEdit) => {
    const letter = { relay: name.relay, id: idOf(seen), position: BigInt(seen["position"] as number) };
    return { action: "edit", relay: name.relay, details: editDetails(letter, edit) } as const;
  };
  await changes.make(note(preparedEdit(fieldsOf(seen), change)), async (session) => {
    const letter = await namedLetter(tables, { ...name, id: idOf(seen) }, session);
    const edit = preparedEdit(fieldsOf(letter), change);
    const { _id, death } = letter;
    const edited = editUpdate(edit, letter);
    const unclaimed = { _id, state: "dead", command: null, death };
    const { matchedCount } = await tables.dead.updateOne(unclaimed, edited.letter, { ...session });
    if (matchedCount === 0) throw conflict("The letter was changed at this very moment", "Look at it again");
    const written = await tables.outbox.updateOne({ _id, status: "dead", death }, edited.document, { ...session });
    const isThere = async () => (await tables.outbox.findOne({ _id }, { ...session, projection: { _id: 1 } })) !== null;
    // A document that is gone is made of the letter when that is requeued.
    if (written.matchedCount === 0 && session.session !== undefined && (await isThere()))
      throw conflict("The letter was changed at this very moment", "Look at it again");
    return { answer: undefined, count: 1 };
  });
}

async function namedLetter(
  { dead }: Tables,
  { relay, id, position }: LetterName,
  session: { session?: unknown },
): Promise<Document> {
  const filter = given({ relay, ...byId(id), position: position === undefined ? undefined : Number(position) });
  const found = await dead.find(filter, { ...session, limit: 3, sort: { state: 1 } });
  const open = found.filter(({ state }) => state === "dead");
  const [letter, second] = open.length > 0 ? open : found;
  if (letter === undefined) {
    const which = id === undefined ? `at position ${String(position)}` : `with id ${id}`;
    throw new TxboxError("not_found", `Relay "${relay}" has no dead letter ${which}`, {
      field: id === undefined ? "position" : "id",
      fix: "List them with `txbox dead list`",
    });
  }
  if (second !== undefined)
    throw conflict("Several dead letters of this relay are named so", "Give both id and position");
  const { state, command } = letter as { state: string; command: string | null };
  if (state !== "dead")
    throw conflict(`The letter was ${state} and is not dead any more`, "Look at it again: it may have been delivered");
  if (command !== null)
    throw conflict(
      `The letter waits to be ${command}${command === "requeue" ? "d" : "ed"}`,
      "Wait until the relay has carried that out; edit it again should it die again",
    );
  return letter;
}

export async function originalOf({ dead }: Tables, { relay, id, position }: LetterName): Promise<Message | null> {
  const filter = given({ relay, ...byId(id), position: position === undefined ? undefined : Number(position) });
  const letter = await dead.findOne(filter);
  if (letter === null) return null;
  return { ...fieldsOf(originalDocument(letter)), position: BigInt(letter["position"] as number) };
}

function idOf(letter: Document): string {
  return String(letter["message_id"] ?? letter["_id"]);
}

function byId(id: string | undefined): Document {
  return id === undefined ? {} : { $or: [{ _id: id }, { message_id: id }] };
}

function given(conditions: Document): Document {
  return Object.fromEntries(Object.entries(conditions).filter(([, value]) => value !== undefined));
}
