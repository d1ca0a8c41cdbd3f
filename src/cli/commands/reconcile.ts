import type { Reconciled } from "../../core/events.ts";
import { createReconciler } from "../../outbox/reconciler.ts";
import { defineCommand, type Command } from "../command.ts";
import { formatTable } from "../format-table.ts";
import type { LoadedConfig } from "../load-config.ts";
import { suggestion } from "../parse-flags.ts";
import { UsageError } from "../usage-error.ts";

export const reconcileCommand: Command = defineCommand({
  name: "reconcile",
  summary: "enqueue once what was left out",
  usage: ["reconcile [NAME…]"],
  about:
    "Runs the reconcilers of the configuration by name, or all of them: each asks its own query for heads without results and\n" +
    "enqueues their messages. A message that was enqueued before is not enqueued again, so any number of processes may do it.",
  words: true,
  flags: {},
  examples: [["reconcile", "from cron"]],
  async run(context, { positionals }) {
    const loaded = await context.loadConfig();
    const names = namesOf(positionals, loaded);
    const { store, where } = await context.open();
    context.output.note(`Reconciling ${where} …`);
    const results: ({ name: string } & Reconciled)[] = [];
    for (const name of names) {
      const reconciler = createReconciler({ ...loaded.config.reconcilers![name]!, store });
      results.push({ name, ...(await reconciler.reconcileOnce()) });
    }
    context.output.result({ reconciled: results }, () =>
      formatTable(results, [
        { title: "RECONCILER", value: ({ name }) => name },
        { title: "FOUND", align: "right", value: ({ found }) => found },
        { title: "ENQUEUED", align: "right", value: ({ enqueued }) => enqueued },
        { title: "KNOWN", align: "right", value: ({ known }) => known },
      ]),
    );
  },
});

function namesOf(asked: readonly string[], { config, file }: LoadedConfig): readonly string[] {
  const known = Object.keys(config.reconcilers ?? {});
  if (known.length === 0) {
    throw new UsageError(
      `${file === undefined ? "There is no configuration, so there" : `${file} has`} are no reconcilers`,
    );
  }
  for (const name of asked) {
    if (!known.includes(name)) throw new UsageError(`There is no reconciler "${name}". ${suggestion(name, known)}`);
  }
  return asked.length === 0 ? known : asked;
}
