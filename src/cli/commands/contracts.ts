import { relative, resolve } from "node:path";
import { compareContracts, type ContractChange } from "../../contracts/compare-contracts.ts";
import { contractFiles } from "../../contracts/contract-files.ts";
import { printable } from "../../core/printable.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { changeFolder, compareFolder, readDescription } from "../contract-folder.ts";
import { EXIT } from "../exit-code.ts";
import { plural } from "../format-values.ts";
import { loadEvents } from "../load-events.ts";
import { noMore, refuseFlags, subcommand } from "../subcommand.ts";
import { UsageError } from "../usage-error.ts";

export const contractsCommand: Command = defineCommand({
  name: "contracts",
  summary: "write down what was agreed about events, and find changes that break",
  usage: ["contracts export [MODULE] [--out FOLDER] [--title TEXT] [--check]", "contracts diff OLD NEW [--strict]"],
  about:
    "export writes an AsyncAPI 3 document and a JSON Schema for each event, from `events` of the configuration or from what\n" +
    "MODULE exports. The files are meant to be committed. diff compares two of them, folders or documents, and ends with 6\n" +
    "when a change breaks consumers or messages that are under way. A change with a new version breaks neither: consumers\n" +
    "that do not know the version wait. It needs no database.",
  words: true,
  flags: {
    out: { kind: "text", value: "FOLDER", help: 'export: where the files are (default "contracts")' },
    title: { kind: "text", help: 'export: the title of the document (default "Events")' },
    check: { kind: "switch", help: "export: write nothing, and end with 6 when the files are not up to date" },
    strict: { kind: "switch", help: "diff: a change with a new version breaks as well, for consumers without txbox" },
  },
  examples: [
    ["contracts export src/events.ts", "write contracts/asyncapi.json and the schemas"],
    ["contracts export --check", "in CI: are the committed files up to date?"],
    ["contracts diff main/contracts contracts", "in CI: does this change break anything?"],
  ],
  async run(context, { flags, positionals }) {
    const { name, rest } = subcommand("contracts", positionals, ["export", "diff"]);
    if (name === "diff") {
      refuseFlags("contracts", flags, ["out", "title", "check"], "contracts export");
      return diff(context, rest, flags.strict === true);
    }
    refuseFlags("contracts", flags, ["strict"], "contracts diff");
    const [module, ...more] = rest;
    noMore("contracts", more);
    const contracts = await loadEvents(context, module);
    const folder = resolve(context.cwd, flags.out ?? "contracts");
    const files = contractFiles(contracts, flags.title ?? "Events");
    const change = await compareFolder(folder, files);
    const shown = relative(context.cwd, folder) || ".";
    const { written, removed } = change;
    if (flags.check === true) {
      const differ = [...written, ...removed];
      context.output.result({ folder: shown, differ }, () =>
        differ.length === 0
          ? `${printable(shown)} is up to date.\n`
          : differ.map((file) => `${printable(`${shown}/${file}`)} is not up to date\n`).join(""),
      );
      if (differ.length === 0) return EXIT.ok;
      context.output.note("txbox: run `txbox contracts export` and commit what it writes");
      return EXIT.found;
    }
    await changeFolder(folder, files, change);
    context.output.result({ folder: shown, events: contracts.length, written, removed }, () =>
      [
        ...written.map((file) => `Wrote ${printable(`${shown}/${file}`)}\n`),
        ...removed.map((file) => `Removed ${printable(`${shown}/${file}`)}\n`),
        `${printable(shown)} has ${plural(contracts.length, "event")}.\n`,
      ].join(""),
    );
    return EXIT.ok;
  },
});

async function diff(context: CliContext, words: readonly string[], strict: boolean): Promise<number> {
  const [before, after, ...more] = words;
  if (before === undefined || after === undefined) {
    throw new UsageError("txbox contracts diff needs two folders or documents: the old one and the new one", {
      command: "contracts",
    });
  }
  noMore("contracts", more);
  const old = await readDescription(resolve(context.cwd, before));
  const changes = compareContracts(old, await readDescription(resolve(context.cwd, after)));
  const breaking = changes.filter(({ severity }) => severity === "breaking" || (strict && severity === "versioned"));
  context.output.result({ breaking: breaking.length, changes }, () =>
    changes.length === 0 ? "Nothing has changed.\n" : changes.map(line).join(""),
  );
  if (breaking.length === 0) return EXIT.ok;
  const events = new Set(breaking.map(({ event }) => event));
  context.output.note(`txbox: ${plural(breaking.length, "breaking change")} of ${[...events].join(", ")}`);
  const mendable = breaking.some(({ path, severity }) => path !== undefined && severity === "breaking");
  if (mendable)
    context.output.note("txbox: raise the `version` of these events and add an `upcast`, or undo the change");
  return EXIT.found;
}

function line({ severity, event, path, says }: ContractChange): string {
  return `${severity.padEnd(9)} ${printable(path === undefined ? event : `${event}: ${path}`)} ${printable(says)}\n`;
}
