import type { PreparedEdit } from "../shared/prepared-edit.ts";
import type { Document } from "./mongodb-client.ts";
import { storedValue } from "./stored-value.ts";

/** Fields that hold what a message says. */
const CONTENTS = ["payload", "payload_format", "headers", "size"] as const;

/** The updates that an edit is, of the letter and of its document. The letter keeps what it was before the first one. */
export function editUpdate(edit: PreparedEdit, letter: Document): { letter: Document; document: Document } {
  const { body } = edit;
  const payload = typeof body === "string" ? storedValue(body) : { value: body, format: undefined };
  const set: Document = { payload: payload.value, size: edit.size };
  const unset: Document = {};
  if (payload.format === undefined) unset["payload_format"] = 1;
  else set["payload_format"] = payload.format;
  if (edit.headers === "{}") unset["headers"] = 1;
  else set["headers"] = storedValue(edit.headers).value;
  const removed = Object.keys(unset).length === 0 ? {} : { $unset: unset };
  const original = letter["edited"] === true ? {} : { original: contentsOf(letter) };
  return {
    letter: { $set: { ...set, ...original, edited: true }, $currentDate: { edited_at: true }, ...removed },
    document: { $set: set, ...removed },
  };
}

/** An edited letter's contents, as a step of the update that brings its document back. */
export function contentsStep(letter: Document): Document[] {
  const { payload, payload_format: format, headers, size } = letter;
  const gone = [...(format === undefined ? ["payload_format"] : []), ...(headers === undefined ? ["headers"] : [])];
  const set = {
    payload: { $literal: payload },
    size,
    ...(format === undefined ? {} : { payload_format: format }),
    ...(headers === undefined ? {} : { headers: { $literal: headers } }),
  };
  return [{ $set: set }, ...(gone.length === 0 ? [] : [{ $unset: gone }])];
}

/** The letter as it was enqueued. */
export function originalDocument(letter: Document): Document {
  if (letter["edited"] !== true) return letter;
  const rest = Object.entries(letter).filter(([name]) => !(CONTENTS as readonly string[]).includes(name));
  return { ...Object.fromEntries(rest), ...(letter["original"] as Document) };
}

function contentsOf(letter: Document): Document {
  return Object.fromEntries(CONTENTS.flatMap((name) => (letter[name] === undefined ? [] : [[name, letter[name]]])));
}
