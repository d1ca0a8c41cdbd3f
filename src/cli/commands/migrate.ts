import type { MigrationStep } from "../../core/contracts.ts";
import { defineCommand, type Command } from "../command.ts";
import { plural } from "../format-values.ts";

export const migrateCommand: Command = defineCommand({
  name: "migrate",
  summary: "create or upgrade the txbox tables",
  usage: ["migrate [--dry-run]"],
  about: "Applies what is pending in one transaction under a lock, so any number of processes may run it at once.",
  flags: {
    "dry-run": { kind: "switch", help: "print the pending SQL for psql (or commands for mongosh), and change nothing" },
  },
  examples: [
    ["migrate", "bring the schema up to date"],
    ["migrate --dry-run > txbox.sql && psql -v ON_ERROR_STOP=1 -f txbox.sql", "let somebody else run the SQL"],
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
    const applied = await store.migrator.migrate();
    output.result({ applied: applied.map(({ version, name }) => ({ version, name })) }, () =>
      applied.length === 0
        ? "The schema is up to date.\n"
        : applied.map(({ version, name }) => `Applied ${String(version).padStart(4, "0")}_${name}\n`).join(""),
    );
  },
});

/** Each step records itself, so the script and `txbox migrate` may be mixed. */
function script(pending: readonly MigrationStep[], mongosh: boolean): string {
  const comment = mongosh ? "//" : "--";
  if (pending.length === 0) return `${comment} The schema is up to date.\n`;
  const steps = pending.map(
    ({ version, name, script }) => `${comment} ${String(version).padStart(4, "0")}_${name}\n${script.trim()}\n`,
  );
  return mongosh ? steps.join("\n") : `begin;\n\n${steps.join("\n")}\ncommit;\n`;
}
