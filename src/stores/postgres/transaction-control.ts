import { TxboxError } from "../../core/errors.ts";

const CONTROL = /\b(?:begin|start|commit|rollback|abort|end|prepare)\b/i;
const ENDS =
  /^(?:begin\b|start\s+transaction\b|commit\b|end\b|abort\b|prepare\s+transaction\b|rollback\b(?!(?:\s+(?:work|transaction))?\s+to\b))/i;
// Strings, quoted names, dollar quotes and comments: nothing in them is a statement.
const OPAQUE =
  /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$[\s\S]*?\$\1\$|--[^\n]*|\/\*(?:[^*/]|\*(?!\/)|\/(?!\*)|\/\*[\s\S]*?\*\/)*\*\//g;
// The body of an SQL function has an END of its own.
const FUNCTION_BODY = /\bbegin\s+atomic\b/i;

/**
 * Refuses SQL that would begin or end a transaction. The receipt and the handler's changes must commit together, so only
 * the one who opened the transaction may end it. Savepoints are free.
 */
export function refuseTransactionControl(text: string): void {
  if (!CONTROL.test(text) || FUNCTION_BODY.test(text)) return;
  for (const statement of text.replaceAll(OPAQUE, " ").split(";")) {
    const [command] = ENDS.exec(statement.trim()) ?? [];
    if (command !== undefined) throw notYours(command.toUpperCase());
  }
}

export function notYours(what: string): TxboxError {
  return new TxboxError("no_transaction", `A handler may not end its transaction, but called ${what}`, {
    field: "tx",
    fix: "Throw to roll back, return to commit, or use a savepoint",
  });
}
