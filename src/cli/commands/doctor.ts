import type { Severity } from "../../core/contracts.ts";
import { printable } from "../../core/printable.ts";
import { checkList, diagnose, type Diagnosis } from "../../doctor/diagnose.ts";
import { defineCommand, type Command } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { formatTable } from "../format-table.ts";
import { plural } from "../format-values.ts";
import { suggestion } from "../parse-flags.ts";
import { UsageError } from "../usage-error.ts";

export const doctorCommand: Command = defineCommand({
  name: "doctor",
  summary: "what is wrong, what comes of it and how to mend it",
  usage: ["doctor [--only CHECK,CHECK] [--fail-on error|warning|info]", "doctor --list"],
  about:
    "Looks at the database and the relays, and changes nothing. A check that fails or takes too long hides no other.",
  flags: {
    only: { kind: "list", help: "only these checks" },
    "fail-on": {
      kind: "text",
      choices: ["error", "warning", "info"],
      help: "end with 6 when there is a finding of this weight or more (default warning)",
    },
    "timeout-ms": { kind: "integer", min: 1, help: "for each check (default 5000)" },
    list: { kind: "switch", help: "print the checks instead" },
  },
  examples: [
    ["doctor", "before a release, and when something is odd"],
    ["doctor --fail-on error --json", "in CI"],
  ],
  async run(context, { flags }) {
    const { store, where } = await context.openUnchecked();
    const checks = checkList(store);
    const names = checks.map(({ name }) => name);
    const unknown = flags.only?.find((name) => !names.includes(name));
    if (unknown !== undefined)
      throw new UsageError(`There is no check "${unknown}". ${suggestion(unknown, names)}`, { command: "doctor" });
    if (flags.list === true) {
      context.output.result({ checks: checks.map(({ name, looksAt }) => ({ name, looksAt })) }, () =>
        formatTable(checks, [
          { title: "check", value: ({ name }) => name },
          { title: "looks at", value: ({ looksAt }) => looksAt },
        ]),
      );
      return EXIT.ok;
    }
    const findings = await diagnose(store, {
      ...(flags.only === undefined ? {} : { only: flags.only }),
      ...(flags["timeout-ms"] === undefined ? {} : { timeoutMs: flags["timeout-ms"] }),
    });
    const looked = flags.only ?? names;
    const hidden = findings.map((one) => ({ ...one, finding: context.output.secrets.hide(one.finding) }));
    context.output.result({ where, checks: looked, findings: hidden }, () => textOf(where, looked.length, hidden));
    const least = RANK.indexOf((flags["fail-on"] as Severity | undefined) ?? "warning");
    const grave = findings.filter(({ severity }) => RANK.indexOf(severity) <= least);
    if (grave.length === 0) return EXIT.ok;
    context.output.note(`txbox: ${plural(grave.length, "finding")}: ${grave.map(({ check }) => check).join(", ")}`);
    return grave.some(({ check }) => check === "connection") ? EXIT.unreachable : EXIT.found;
  },
});

const RANK: readonly Severity[] = ["error", "warning", "info"];

function textOf(where: string, checks: number, findings: readonly Diagnosis[]): string {
  if (findings.length === 0) return `${where}: ${plural(checks, "check")}, nothing found.\n`;
  const parts = findings.map(({ check, severity, finding, consequence, fix }) =>
    [
      `${severity.toUpperCase()} ${check}: ${printable(finding)}`,
      `    so: ${printable(consequence)}`,
      `    do: ${printable(fix)}`,
    ].join("\n"),
  );
  return `${where}: ${plural(checks, "check")}, ${plural(findings.length, "finding")}.\n\n${parts.join("\n\n")}\n`;
}
