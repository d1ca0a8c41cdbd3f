import type { Admin } from "../core/contracts.ts";
import type { TextFlag } from "./parse-flags.ts";

/** Flags of every command that changes something. */
export const AUTHOR_FLAGS: Readonly<Record<"actor" | "reason", TextFlag>> = {
  actor: { kind: "text", value: "NAME", help: "who does it, for `txbox changes` (default: the user of the database)" },
  reason: { kind: "text", value: "TEXT", help: "why, for `txbox changes`" },
};

export interface AuthorValues {
  readonly actor?: string;
  readonly reason?: string;
}

/** The author that the flags name; undefined: none. */
export function authorOf({ actor, reason }: AuthorValues): { actor?: string; reason?: string } | undefined {
  if (actor === undefined && reason === undefined) return undefined;
  return { ...(actor === undefined ? {} : { actor }), ...(reason === undefined ? {} : { reason }) };
}

export function adminBy(admin: Admin, flags: AuthorValues): Admin {
  const author = authorOf(flags);
  return author === undefined ? admin : admin.by(author);
}
