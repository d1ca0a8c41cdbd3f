import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { EXIT } from "../exit-code.ts";
import { plural } from "../format-values.ts";
import { requirePostgres } from "../open-store.ts";

export const rebaseCommand: Command = defineCommand({
  name: "rebase",
  summary: "make a restored copy of a database usable",
  usage: ["rebase [--yes]"],
  about:
    "A dump that was restored, or a logical copy, has transaction ids of another server, so relays refuse it. This enqueues\n" +
    "again what was pending, with the same message ids, and lets every relay begin after it. Run it while nothing writes.",
  flags: { yes: { kind: "switch", help: "do not ask" } },
  examples: [["rebase --database-url postgres://localhost/restored", "once, after pg_restore"]],
  async run(context, { flags }) {
    const { output } = context;
    const { store, where } = await context.open();
    const postgres = requirePostgres(store);
    if (!(await confirm(`Rebase ${where}? Nothing may write to it meanwhile.`, flags.yes, "rebase"))) {
      output.note("Nothing was changed.");
      return EXIT.failed;
    }
    output.note(`Rebasing ${where} …`);
    const report = await postgres.rebase();
    output.result(report, () => `Enqueued ${plural(report.republished, "pending message")} again. Relays may start.\n`);
    return EXIT.ok;
  },
});
