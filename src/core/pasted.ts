/** A word of a command line, as a shell takes it whatever is in it. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A text in SQL. */
export function sqlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** What can be done with a dead letter. */
export function deadLetterCommands(id: string, relay: string): string {
  const words = `${shellWord(id)} --relay ${shellWord(relay)}`;
  return `txbox dead requeue ${words}, or txbox dead discard ${words}`;
}
