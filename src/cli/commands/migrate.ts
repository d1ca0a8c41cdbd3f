import type { MigrationStep } from "../../core/contracts.ts";
import { defineCommand, type Command } from "../command.ts";
import { plural } from "../format-values.ts";

export const migrateCommand: Command = defineCommand({
  name: "migrate",
  summary: "create or upgrade the txbox tables",
  usage: ["migrate [--dry-run]"],
  about:
    "Applies what is pending under a lock, so any number of processes may run it at once. Tables in use are changed piece " +
    "by piece, while writers and relays go on; a run that was interrupted is taken up by the next.",
  flags: {
    "dry-run": { kind: "switch", help: "print the pending SQL for psql (or commands for mongosh), and change nothing" },
  },
  examples: [
    ["migrate", "bring the schema up to date"],
    ["migrate --dry-run > txbox.sql && psql -v ON_ERROR_STOP=1 -f txbox.sql", "let another person run the SQL"],
  ],
  async run(context, { flags }) {
    const { output } = context;
    const { store, where } = await context.openUnchecked();
    if (flags["dry-run"] === true) {
      const pending = await store.migrator.pending();
      output.program({ pending }, script(pending, store.name === "mongodb"));
      return;
    }
    const pending = await store.migrator.pending();
    if (pending.length > 0) output.note(`Applying ${plural(pending.length, "migration")} to ${where} …`);
    const applied = await store.migrator.migrate({
      onProgress: ({ version, name, title, left }) =>
        output.note(`${label(version, name)}: ${title}${left > 1 ? ` (${left} left)` : ""} …`),
    });
    output.result({ applied: applied.map(({ version, name }) => ({ version, name })) }, () =>
      applied.length === 0
        ? "The schema is up to date.\n"
        : applied.map(({ version, name }) => `Applied ${label(version, name)}\n`).join(""),
    );
  },
});

/** Each step records itself, so the script and `txbox migrate` may be mixed. */
function script(pending: readonly MigrationStep[], mongosh: boolean): string {
  const comment = mongosh ? "//" : "--";
  if (pending.length === 0) return `${comment} The schema is up to date.\n`;
  const steps = pending.map(({ version, name, script }) => `${comment} ${label(version, name)}\n${script.trim()}\n`);
  return steps.join("\n");
}

function label(version: number, name: string): string {
  return `${String(version).padStart(4, "0")}_${name}`;
}
