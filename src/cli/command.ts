import type { CliContext } from "./cli-context.ts";
import { noMore } from "./subcommand.ts";
import { parseFlags, type Flags, type FlagValues, type SwitchFlag, type TextFlag } from "./parse-flags.ts";

type GlobalFlags = Readonly<
  Record<"config" | "store" | "database-url" | "schema" | "table-prefix", TextFlag> &
    Record<"json" | "verbose" | "help", SwitchFlag>
>;

/** Flags of every command. */
export const GLOBAL_FLAGS: GlobalFlags = {
  config: {
    kind: "text",
    value: "FILE",
    help: "configuration file (default: txbox.config.ts, .mts, .js or .mjs here)",
  },
  store: { kind: "text", value: "NAME", help: "one of the configuration's `stores`, instead of its own (main)" },
  "database-url": { kind: "text", value: "URL", help: "postgres://…, mongodb://… or pglite:FOLDER" },
  schema: { kind: "text", value: "NAME", help: 'schema of the txbox tables (default "txbox")' },
  "table-prefix": { kind: "text", value: "TEXT", help: "put before every table name" },
  json: { kind: "switch", help: "JSON on stdout" },
  verbose: { kind: "switch", help: "stack traces and details" },
  help: { kind: "switch", help: "this text (also -h)" },
};

/** A command may have a flag of every command in another form: several configurations instead of one. */
export interface CommandArgs<F extends Flags> {
  readonly flags: FlagValues<F & Omit<GlobalFlags, keyof F>>;
  readonly positionals: readonly string[];
}

export interface CommandSpec<F extends Flags> {
  readonly name: string;
  /** One line for the overview. */
  readonly summary: string;
  /** What follows `txbox`, one line per form. */
  readonly usage: readonly string[];
  readonly about?: string;
  readonly flags: F;
  /** Whether words may follow the command. Default false. */
  readonly words?: boolean;
  readonly examples: readonly (readonly [command: string, meaning: string])[];
  readonly run: (context: CliContext, args: CommandArgs<F>) => Promise<number | void>;
}

export interface ParsedCommand {
  readonly globals: FlagValues<GlobalFlags>;
  readonly run: (context: CliContext) => Promise<number | void>;
}

/** A command with flags of any kind. */
export interface Command extends Omit<CommandSpec<Flags>, "run"> {
  readonly parse: (argv: readonly string[]) => ParsedCommand;
}

export function defineCommand<const F extends Flags>(spec: CommandSpec<F>): Command {
  const { name, run, ...rest } = spec;
  return {
    ...rest,
    name,
    parse(argv) {
      const args = parseFlags(argv, { ...GLOBAL_FLAGS, ...spec.flags }, name) as CommandArgs<F>;
      if (spec.words !== true) noMore(name, args.positionals);
      const { config, ...others } = args.flags as FlagValues<Omit<GlobalFlags, "config">> & {
        readonly config?: string | readonly string[];
      };
      const first = typeof config === "string" ? config : config?.[0];
      const globals = first === undefined ? others : { ...others, config: first };
      return { globals, run: (context) => run(context, args) };
    },
  };
}
