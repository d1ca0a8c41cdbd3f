/** What the process's exit code means; scripts may rely on it. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  schema: 3,
  unreachable: 4,
  refused: 5,
  found: 6,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export const EXIT_MEANINGS: readonly (readonly [ExitCode, string])[] = [
  [EXIT.ok, "done"],
  [EXIT.failed, "it failed: not found, not confirmed, or an unexpected error"],
  [EXIT.usage, "wrong command, flag, URL or configuration"],
  [EXIT.schema, "the txbox schema is missing, outdated or newer than this version"],
  [EXIT.unreachable, "the database cannot be reached or refused the login"],
  [EXIT.refused, "refused: the server is a standby, or the database is a restored copy"],
  [EXIT.found, "an audit, the doctor or a comparison of contracts found something"],
];
