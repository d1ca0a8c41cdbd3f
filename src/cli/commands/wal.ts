import type { WalStatus } from "../../stores/postgres/index.ts";
import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { EXIT } from "../exit-code.ts";
import { formatTable } from "../format-table.ts";
import { formatBytes } from "../format-values.ts";
import { requirePostgres } from "../open-store.ts";
import { noMore, refuseFlags, subcommand } from "../subcommand.ts";

export const walCommand: Command = defineCommand({
  name: "wal",
  summary: 'what relays with source: "stream" need on PostgreSQL',
  usage: ["wal status", "wal enable", "wal disable [--yes]"],
  about:
    "A relay with this source reads new messages from the server's own log. enable makes the publication, once for all relays,\n" +
    "and says what else is missing; run it as the owner of the tables. disable drops the publication and every slot: relays\n" +
    "go on by polling. status exits with 1 while something is missing.",
  words: true,
  flags: { yes: { kind: "switch", help: "do not ask" } },
  examples: [
    ["wal enable", "once, before the first relay streams"],
    ["wal status", "who streams, who polls and why, and what the slots keep"],
  ],
  async run(context, { flags, positionals }) {
    const { name: what, rest } = subcommand("wal", positionals, ["status", "enable", "disable"]);
    noMore("wal", rest);
    if (what !== "disable") refuseFlags("wal", flags, ["yes"], "wal disable");
    const { output } = context;
    const { store, where } = await context.open();
    const { wal } = requirePostgres(store);
    const question = `Drop the publication and the replication slots of ${where}? Its relays go on by polling.`;
    if (what === "disable" && !(await confirm(question, flags.yes, "wal"))) {
      output.note("Nothing was changed.");
      return EXIT.failed;
    }
    const status = await wal[what]();
    output.result(status, () => statusText(status));
    return what === "disable" || status.ready ? EXIT.ok : EXIT.failed;
  },
});

function statusText({ publication, missing, relays }: WalStatus): string {
  const head =
    missing.length === 0
      ? `Relays may stream: publication ${publication.name}.\n`
      : `Relays cannot stream, and poll:\n${missing.map((one) => `  - ${one}\n`).join("")}`;
  const processes = relays.flatMap(({ relay, processes: its }) => its.map((one) => ({ relay, ...one })));
  const slots = relays.flatMap(({ relay, slot }) => (slot === undefined ? [] : [{ relay, ...slot }]));
  const tables = [
    processes.length === 0
      ? "No relay process runs.\n"
      : formatTable(processes, [
          { title: "relay", value: ({ relay }) => relay },
          { title: "process", value: ({ owner }) => owner },
          { title: "source", value: ({ source }) => source, max: 120 },
        ]),
    slots.length === 0
      ? "There is no replication slot.\n"
      : formatTable(slots, [
          { title: "relay", value: ({ relay }) => relay },
          { title: "slot", value: ({ name }) => name },
          { title: "state", value: ({ active, lost }) => (lost ? "lost" : active ? "read" : "not read") },
          { title: "keeps", align: "right", value: ({ retainedBytes }) => formatBytes(retainedBytes) },
        ]),
  ];
  return [head, ...tables].join("\n");
}
