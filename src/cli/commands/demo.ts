import { defineCommand, type Command } from "../command.ts";
import { runDemo } from "../demo/run-demo.ts";
import { EXIT } from "../exit-code.ts";
import { stopSignal } from "../stop-signal.ts";
import { refuseFlags } from "../subcommand.ts";

const PORT = 4466;

export const demoCommand: Command = defineCommand({
  name: "demo",
  summary: "see it work: orders and payments, with accidents, without a server",
  usage: ["demo [--orders N]", "demo --page [--port N]"],
  about:
    "Runs on PGlite in memory (`npm install @electric-sql/pglite`), ends by itself and leaves nothing behind. With --page it\n" +
    "serves the page instead, while messages flow, fail and recover, until Ctrl-C.",
  flags: {
    orders: { kind: "integer", min: 12, help: "orders to place (default 24)" },
    page: { kind: "switch", help: "serve the page on this machine, until Ctrl-C" },
    port: { kind: "integer", min: 0, help: `--page: its port (default ${PORT})` },
  },
  examples: [
    ["demo", "the whole story"],
    ["demo --json", "the figures alone"],
    ["demo --page", "the page, at http://127.0.0.1:4466/"],
  ],
  async run(context, { flags }) {
    const { output, cwd } = context;
    if (flags.page === true) {
      refuseFlags("demo", flags, ["orders"], "the demo without --page");
      // Only now: the demo without the page must not wait for it to load.
      const { runPageDemo } = await import("../demo/page-demo.ts");
      await runPageDemo({ output, cwd, port: flags.port ?? PORT, stop: stopSignal() });
      return EXIT.ok;
    }
    refuseFlags("demo", flags, ["port"], "demo --page");
    const summary = await runDemo({ output, cwd, orders: flags.orders ?? 24 });
    if (output.json) output.result(summary, () => "");
    return summary.everyOrderPaidOnce ? EXIT.ok : EXIT.failed;
  },
});
