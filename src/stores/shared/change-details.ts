import { createHash } from "node:crypto";
import type { Author, Change, DeadChoice, LetterName, RewindTarget, StoppedRedrive } from "../../core/contracts.ts";
import type { PreparedEdit } from "./prepared-edit.ts";

/** How many letters of a list are named in a change. */
const NAMED = 20;

/** What is noted of a change. */
export type Note = Pick<Change, "action" | "relay" | "details" | "count">;

/** A choice of letters as JSON can hold it. The parts of a redrive differ in their letters only, so these are left out. */
export function detailsOf(choice: DeadChoice, author: Author | undefined): Record<string, unknown> {
  const { relay: _relay, position, letters, ...others } = choice;
  const isPart = author?.redrive !== undefined;
  return {
    ...others,
    ...(position === undefined ? {} : { position: String(position) }),
    ...(letters === undefined || isPart
      ? {}
      : { letters: letters.slice(0, NAMED).map(({ id }) => id), of: letters.length }),
  };
}

export function editDetails({ id, position }: Required<LetterName>, edit: PreparedEdit): Record<string, unknown> {
  const sha256 = createHash("sha256").update(edit.body).digest("hex");
  return { id, position: String(position), bytes: Buffer.byteLength(edit.body), sha256 };
}

/** What is noted of a redrive that was stopped. */
export function stopNote({ relay, what, requeued }: StoppedRedrive): Note {
  return { action: "stop", relay: relay ?? null, details: { what, requeued }, count: null };
}

export function rewindDetails(target: RewindTarget): Record<string, unknown> {
  if (typeof target === "string") return { to: target };
  return { to: "position" in target ? { position: String(target.position) } : { time: target.time.toISOString() } };
}
