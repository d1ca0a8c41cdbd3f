import { readFile } from "node:fs/promises";
import { describeError } from "../core/errors.ts";
import { CliContext, type Environment } from "./cli-context.ts";
import { type Command, GLOBAL_FLAGS } from "./command.ts";
import { COMMANDS } from "./commands/index.ts";
import { EXIT } from "./exit-code.ts";
import { explainFailure } from "./explain-failure.ts";
import { commandHelp, overview } from "./help-text.ts";
import { Output } from "./output.ts";
import { hasSwitch, looksLikeFlag, parseFlags, splitFlag, suggestion } from "./parse-flags.ts";
import { noMore } from "./subcommand.ts";
import { UsageError } from "./usage-error.ts";

export interface CliOptions {
  readonly argv: readonly string[];
  readonly env: Environment;
  readonly cwd: string;
  /** How long the configuration may take to load, and each of its functions to make something. Default 60 s. */
  readonly configDeadlineMs?: number;
}

/** Runs one command and ends the process with its exit code. */
export async function runCli(options: CliOptions): Promise<void> {
  const { argv } = options;
  const output = new Output({ json: hasSwitch(argv, "--json"), verbose: hasSwitch(argv, "--verbose") });
  // The reader of our output may go, as in `txbox status | head`; the write that failed tells the code that must know.
  process.stdout.on("error", () => undefined);
  process.stderr.on("error", () => undefined);
  printSafely(output);
  const exitCode = await runCommandLine(options, output);
  await output.flushed();
  // A client of the user's configuration may still hold the process.
  process.exit(exitCode);
}

/** Runs one command and gives its exit code. Whatever happens is told through the output. */
export async function runCommandLine(options: CliOptions, output: Output): Promise<number> {
  let context: CliContext | undefined;
  try {
    const { name, rest } = commandOf(options.argv);
    if (name === undefined || name === "--help" || name === "-h") {
      output.text(overview(COMMANDS));
      return name === undefined ? EXIT.usage : EXIT.ok;
    }
    if (name === "help") {
      const [topic, ...more] = parseFlags(rest, GLOBAL_FLAGS, "help").positionals;
      noMore(undefined, more);
      output.text(topic === undefined ? overview(COMMANDS) : commandHelp(find(topic)));
      return EXIT.ok;
    }
    if (name === "--version" || name === "-v" || name === "version") {
      noMore(undefined, parseFlags(rest, GLOBAL_FLAGS).positionals);
      const version = await packageVersion();
      output.result({ version }, () => `${version}\n`);
      return EXIT.ok;
    }
    const command = find(name);
    if (hasSwitch(rest, "--help", "-h")) {
      output.text(commandHelp(command));
      return EXIT.ok;
    }
    const { globals, run: start } = command.parse(rest);
    const { cwd, env, configDeadlineMs } = options;
    context = new CliContext({ output, cwd, env, globals, configDeadlineMs });
    return (await start(context)) ?? EXIT.ok;
  } catch (error) {
    const explanation = explainFailure(error, await context?.where());
    output.failure(explanation);
    if (output.verbose && error instanceof Error) output.details(stackOf(error));
    return explanation.exitCode;
  } finally {
    await context?.[Symbol.asyncDispose]();
  }
}

/** What Node would print by itself, of uncaught errors and of warnings, may hold passwords and escapes too. */
function printSafely(output: Output): void {
  process.on("uncaughtException", (error) => {
    output.failure({ exitCode: EXIT.failed, code: "failed", message: `Unexpected: ${describeError(error)}` });
    if (output.verbose && error instanceof Error) output.details(stackOf(error));
    void output.flushed().finally(() => process.exit(EXIT.failed));
  });
  if (process.listenerCount("warning") === 0) return;
  process.removeAllListeners("warning");
  process.on("warning", ({ name, message }) => output.note(`${name}: ${message}`));
}

function stackOf(error: Error): string {
  const stack = error.stack ?? String(error);
  return error.cause instanceof Error ? `${stack}\ncaused by ${stackOf(error.cause)}` : stack;
}

/** `txbox --json status` means `txbox status --json`. */
function commandOf(argv: readonly string[]): { name: string | undefined; rest: readonly string[] } {
  let at = 0;
  while (at < argv.length) {
    const { name, value } = splitFlag(argv[at] ?? "");
    const flag = looksLikeFlag(argv[at] ?? "")
      ? Object.entries(GLOBAL_FLAGS).find(([known]) => known === name)
      : undefined;
    if (flag === undefined || name === "help") break;
    const next = argv[at + 1];
    const takesNext = flag[1].kind === "text" && value === undefined && next !== undefined && !looksLikeFlag(next);
    at += takesNext ? 2 : 1;
  }
  if (argv.length > 0 && argv[at] === undefined) {
    parseFlags(argv, GLOBAL_FLAGS);
    throw whichCommand();
  }
  return { name: argv[at], rest: [...argv.slice(0, at), ...argv.slice(at + 1)] };
}

function find(name: string): Command {
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (command !== undefined) return command;
  if (looksLikeFlag(name)) {
    parseFlags([name], GLOBAL_FLAGS);
    throw whichCommand();
  }
  throw new UsageError(`There is no command "${name}". ${suggestion(name, commandNames())}`);
}

function whichCommand(): UsageError {
  return new UsageError(`Which command? There are ${commandNames().join(", ")}`);
}

function commandNames(): string[] {
  return [...COMMANDS.map(({ name }) => name), "help"];
}

async function packageVersion(): Promise<string> {
  const text = await readFile(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
