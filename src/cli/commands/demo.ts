import { defineCommand, type Command } from "../command.ts";
import { runDemo } from "../demo/run-demo.ts";
import { EXIT } from "../exit-code.ts";

export const demoCommand: Command = defineCommand({
  name: "demo",
  summary: "see it work: orders and payments, with accidents, without a server",
  usage: ["demo [--orders N]"],
  about: "Runs on PGlite in memory (`npm install @electric-sql/pglite`), ends by itself and leaves nothing behind.",
  flags: { orders: { kind: "integer", min: 12, help: "orders to place (default 24)" } },
  examples: [
    ["demo", "the whole story"],
    ["demo --json", "the figures alone"],
  ],
  async run(context, { flags }) {
    const summary = await runDemo({ output: context.output, cwd: context.cwd, orders: flags.orders ?? 24 });
    if (context.output.json) context.output.result(summary, () => "");
    return summary.everyOrderPaidOnce ? EXIT.ok : EXIT.failed;
  },
});
