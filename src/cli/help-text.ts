import { type Command, GLOBAL_FLAGS } from "./command.ts";
import { EXIT_MEANINGS } from "./exit-code.ts";
import type { Flags } from "./parse-flags.ts";

/** `txbox help`. */
export function overview(commands: readonly Command[]): string {
  return [
    "txbox: transactional outbox and inbox",
    "",
    "Usage: txbox COMMAND [flags]",
    "",
    "Commands",
    ...aligned([
      ...commands.map(({ name, summary }) => [name, summary] as const),
      ["help [COMMAND]", "how to use a command"],
    ]),
    "",
    "Flags of every command",
    ...flagLines(GLOBAL_FLAGS),
    "  --version               the version of txbox",
    "",
    ...ENVIRONMENT,
    "",
    ...exitCodes(),
    "",
    "Start here",
    "  txbox demo                                   see it work, without a server",
    "  txbox migrate --database-url postgres://…    create the tables",
    "",
  ].join("\n");
}

/** `txbox COMMAND --help`. */
export function commandHelp({ name, summary, usage, about, flags, examples }: Command): string {
  const lines = [
    `txbox ${name}: ${summary}`,
    "",
    ...usage.map((form, i) => `${i === 0 ? "Usage: " : "       "}txbox ${form}`),
    "",
  ];
  if (about !== undefined) lines.push(about, "");
  if (Object.keys(flags).length > 0) lines.push("Flags", ...flagLines(flags), "");
  const others = Object.fromEntries(Object.entries(GLOBAL_FLAGS).filter(([flag]) => !Object.hasOwn(flags, flag)));
  lines.push("Flags of every command", ...flagLines(others), "", "Examples");
  for (const [command, meaning] of examples) lines.push(`  txbox ${command}`, `      ${meaning}`);
  return [...lines, "", ...exitCodes(), ""].join("\n");
}

const ENVIRONMENT = [
  "Settings are taken from flags, then from the environment, then from the configuration file.",
  "Environment: TXBOX_DATABASE_URL or DATABASE_URL (or PGHOST, PGDATABASE, …), TXBOX_SCHEMA, TXBOX_TABLE_PREFIX, TXBOX_CONFIG",
];

function exitCodes(): string[] {
  return ["Exit codes", ...EXIT_MEANINGS.map(([code, meaning]) => `  ${code}  ${meaning}`)];
}

function flagLines(flags: Flags): string[] {
  return aligned(
    Object.entries(flags).map(([name, flag]) => {
      const value =
        flag.value ??
        (flag.kind === "text" && flag.choices !== undefined ? flag.choices.join("|") : defaultValue(flag.kind));
      return [`--${name}${value === "" ? "" : ` ${value}`}`, flag.help] as const;
    }),
  );
}

function defaultValue(kind: Flags[string]["kind"]): string {
  return { switch: "", seconds: "[SECONDS]", integer: "N", position: "N", text: "TEXT", list: "A,B" }[kind];
}

function aligned(pairs: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(22, ...pairs.map(([left]) => left.length));
  return pairs.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
