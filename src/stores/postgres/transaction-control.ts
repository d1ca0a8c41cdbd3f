import { TxboxError } from "../../core/errors.ts";

// Most statements have none of these words: they are not looked at any further.
const SUSPICIOUS =
  /\b(?:begin|start|commit|rollback|abort|end|prepare|set|reset|discard|listen|unlisten|deallocate|hold|temp|temporary|load|set_config|pg_(?:try_)?advisory_lock(?:_shared)?)\b/i;
const ENDS =
  /^(?:begin\b|start\s+transaction\b|commit\b|end\b|abort\b|prepare\s+transaction\b|rollback\b(?!(?:\s+(?:work|transaction))?\s+to\b))/i;
/** What stays with the connection after the transaction, each with what to do instead. */
const OUTLIVES: readonly (readonly [RegExp, string])[] = [
  [/^set\b(?!\s+(?:local|transaction|constraints)\b)/i, "Use SET LOCAL, which ends with the transaction"],
  [/\bset_config\s*\([^()]*,\s*false\s*\)/i, "Give set_config true as its third argument: until the transaction ends"],
  [/^(?:reset|discard)\b/i, "Use SET LOCAL in the handler; settings of a connection belong to the pool"],
  [/^(?:un)?listen\b/i, "Listen on a connection of your own"],
  [/^(?:prepare|deallocate)\b/i, "Give the query a name by your driver instead"],
  [/^declare\b[\s\S]*\bwith\s+hold\b/i, "Declare the cursor without HOLD"],
  [/^load\b/i, "Load it by session_preload_libraries"],
  [
    /^create\s+(?:(?:global|local)\s+)?temp(?:orary)?\b(?![\s\S]*\bon\s+commit\b)|\binto\s+(?:(?:global|local)\s+)?temp(?:orary)?\b/i,
    "Create it with ON COMMIT DROP",
  ],
  [
    /\bpg_(?:try_)?advisory_lock(?:_shared)?\s*\(/i,
    "Use pg_advisory_xact_lock or pg_try_advisory_xact_lock, which end with the transaction",
  ],
];
// Strings, quoted names, dollar quotes and comments: nothing in them is a statement.
const OPAQUE =
  /\be'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$[\s\S]*?\$\1\$|--[^\n]*|\/\*(?:[^*/]|\*(?!\/)|\/(?!\*)|\/\*[\s\S]*?\*\/)*\*\//gi;

/**
 * Refuses SQL that would begin or end a transaction: the receipt and the handler's changes must commit together, so
 * only the code that opened the transaction may end it. Refuses as well what would stay behind on the connection, which
 * goes back to the user's pool. Savepoints are free. Looks at the text only, not into functions that it calls.
 */
export function refuseTransactionControl(text: string): void {
  if (!SUSPICIOUS.test(text)) return;
  let inFunctionBody = false;
  for (const part of text.replaceAll(OPAQUE, " ").split(";")) {
    const statement = part.trim();
    // The body of an SQL function has statements and an END of its own.
    if (inFunctionBody) {
      inFunctionBody = !/^end\b/i.test(statement);
      continue;
    }
    inFunctionBody = /\bbegin\s+atomic\b(?!\s*end$)/i.test(statement);
    const [command] = ENDS.exec(statement) ?? [];
    if (command !== undefined) throw notYours(command.toUpperCase());
    for (const [pattern, fix] of OUTLIVES) {
      const [found] = pattern.exec(statement) ?? [];
      if (found !== undefined) throw leftBehind(found, fix);
    }
  }
}

/** Whether a transaction is open after this text; undefined when it neither begins nor ends one. */
export function opensOrEnds(text: string): "opens" | "ends" | undefined {
  if (!SUSPICIOUS.test(text)) return undefined;
  const statements = text.replaceAll(OPAQUE, " ").split(";");
  const last = statements.map((statement) => ENDS.exec(statement.trim())?.[0]).findLast((found) => found !== undefined);
  return last === undefined ? undefined : /^(?:begin|start)/i.test(last) ? "opens" : "ends";
}

export function notYours(what: string): TxboxError {
  return new TxboxError("no_transaction", `A handler may not end its transaction, but called ${what}`, {
    field: "tx",
    fix: "Throw to roll back, return to commit, or use a savepoint",
  });
}

export function leftBehind(what: string, fix: string): TxboxError {
  const shown = what.replaceAll(/\s+/g, " ").slice(0, 40);
  return new TxboxError("no_transaction", `"${shown}" would outlive the handler's transaction on its connection`, {
    field: "tx",
    fix,
  });
}
