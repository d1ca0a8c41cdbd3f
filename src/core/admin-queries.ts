import type { DeadQuery, MessageQuery, RewindTarget } from "./contracts.ts";
import { TxboxError } from "./errors.ts";
import { rejectUnknownOptions, requireInteger } from "./options.ts";
import { valueKind } from "./value-kind.ts";

/** Complete by construction: a new field that is missing here does not compile. */
const MESSAGE_FIELDS: Readonly<Record<keyof MessageQuery, true>> = {
  id: true,
  stream: true,
  key: true,
  aggregateType: true,
  aggregateId: true,
  correlationId: true,
  relay: true,
  limit: true,
};
const DEAD_FIELDS: Readonly<Record<keyof DeadQuery, true>> = {
  relay: true,
  id: true,
  position: true,
  stream: true,
  type: true,
  key: true,
  state: true,
  limit: true,
};

/** The query, if it is one. A misspelt field must not mean "all messages". */
export function checkedMessageQuery(query: MessageQuery): MessageQuery {
  return checked("admin.find", query, Object.keys(MESSAGE_FIELDS));
}

/** The query, if it is one. A misspelt field must not mean "all dead letters". */
export function checkedDeadQuery(of: string, query: DeadQuery): DeadQuery {
  checked(of, query, Object.keys(DEAD_FIELDS));
  const { position } = query;
  if (position !== undefined && typeof position !== "bigint") throw wrong(of, "position", "a bigint", position);
  return query;
}

export function checkedRewindTarget(target: RewindTarget): RewindTarget {
  const given = target as RewindTarget | null | undefined;
  if (given === "earliest" || given === "now") return given;
  if (typeof given === "object" && given !== null) {
    if ("position" in given && typeof given.position === "bigint") return given;
    if ("time" in given && given.time instanceof Date && !Number.isNaN(given.time.getTime())) return given;
  }
  throw new TxboxError("invalid_option", `admin.rewind: no such target, got ${valueKind(given)}`, {
    field: "target",
    fix: 'Give "earliest", "now", { position: 42n } or { time: new Date(…) }',
  });
}

function checked<Query extends MessageQuery | DeadQuery>(of: string, query: Query, fields: readonly string[]): Query {
  rejectUnknownOptions(of, query, fields);
  for (const [field, value] of Object.entries(query) as [string, unknown][]) {
    if (value === undefined || field === "position") continue;
    if (field === "limit") requireInteger(of, field, value, 1);
    else if (typeof value !== "string") throw wrong(of, field, "a string", value);
  }
  return query;
}

function wrong(of: string, field: string, wanted: string, value: unknown): TxboxError {
  return new TxboxError("invalid_option", `${of}: ${field} must be ${wanted}, got ${valueKind(value)}`, {
    field,
    fix: `Give ${field} as ${wanted}, or leave it out`,
  });
}
