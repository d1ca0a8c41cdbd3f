import { describeError, errorCode } from "../../../core/errors.ts";
import { sqlState } from "../classify-error.ts";
import type { Names } from "../postgres-names.ts";
import type { SlotView } from "./wal-slot.ts";

/** Why a relay polls though it was asked to stream, with what to do about it. Delivery goes on. */
export class WalRefusal extends Error {
  override readonly name = "WalRefusal";
}

export const ELSEWHERE =
  "The replication connection and the client of the store lead to different servers or databases";

/** The publication does not bring the whole log. */
export function unfitPublication({ publication }: Names, state: "missing" | "changed"): WalRefusal {
  return new WalRefusal(
    state === "missing"
      ? `The publication ${publication} does not exist. Run \`txbox wal enable\``
      : `The publication ${publication} does not bring every insert into the log. Run \`txbox wal disable\`, then \`txbox wal enable\``,
  );
}

/** Throws when the server cannot stream the log as it is set up. */
export function requireStreamable(view: SlotView, names: Names, slot: string): void {
  if (view.walLevel !== "logical") {
    throw new WalRefusal(
      `The server's wal_level is ${view.walLevel}. Set wal_level = logical and restart it, or use source: "polling"`,
    );
  }
  if (view.publication !== "ready") throw unfitPublication(names, view.publication);
  if (view.slot !== undefined && !view.slot.ours) {
    throw new WalRefusal(
      `The replication slot ${slot} belongs to something else. Drop it: select pg_drop_replication_slot('${slot}')`,
    );
  }
}

const FIXES: Readonly<Record<string, string>> = {
  "42501":
    "The role of the relay needs the attribute REPLICATION: alter role … replication; see docs/wal.md for managed services",
  "53400": "Every replication slot of the server is taken: raise max_replication_slots",
  "53300": "Every sender of the server is taken: raise max_wal_senders",
  "28000": "The server lets no replication connection in: allow it in pg_hba.conf for this database",
  "08P01":
    "Something in between, such as a connection pooler, carries no replication: give createPostgresStore a direct connection as replication.connect",
};

/** Of connections, rights, limits, objects in use or missing, and the server's own end: what may be otherwise next time. */
const PASSING = /^(08|25|28|40|42|53|54|55|57|58)/;

/** With this the server ended a stream because it could not decode its log: it would come again with the same slot. */
export function isOfReading(error: unknown): boolean {
  const state = sqlState(error);
  return state !== undefined && !PASSING.test(state);
}

/** An error as people need it: what happened, and the fix where one is known. */
export function explainStreamError(error: unknown): string {
  if (error instanceof WalRefusal) return error.message;
  const text = describeError(error);
  const code = errorCode(error);
  const fix = /unsupported startup parameter/.test(text)
    ? FIXES["08P01"]
    : code === undefined
      ? undefined
      : FIXES[code];
  return fix === undefined ? text : `${text}. ${fix}`;
}
