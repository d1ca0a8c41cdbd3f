import { readFile } from "node:fs/promises";
import { CliContext, type Environment } from "./cli-context.ts";
import { type Command, GLOBAL_FLAGS } from "./command.ts";
import { COMMANDS } from "./commands/index.ts";
import { EXIT } from "./exit-code.ts";
import { explainFailure } from "./explain-failure.ts";
import { commandHelp, overview } from "./help-text.ts";
import { jsonText } from "./json-text.ts";
import { Output } from "./output.ts";
import { parseFlags, suggestion } from "./parse-flags.ts";
import { UsageError } from "./usage-error.ts";

export interface CliOptions {
  readonly argv: readonly string[];
  readonly env: Environment;
  readonly cwd: string;
}

/** Runs one command and ends the process with its exit code. */
export async function runCli(options: CliOptions): Promise<void> {
  const { argv } = options;
  const output = new Output({ json: argv.includes("--json"), verbose: argv.includes("--verbose") });
  // Whoever read our output has gone, as in `txbox status | head`; the write that failed tells those who must know.
  process.stdout.on("error", () => undefined);
  const exitCode = await run(options, output);
  await output.flushed();
  // A client of the user's configuration may still hold the process.
  process.exit(exitCode);
}

async function run(options: CliOptions, output: Output): Promise<number> {
  let context: CliContext | undefined;
  try {
    const [first, ...rest] = commandFirst(options.argv);
    if (first === undefined || first === "--help" || first === "-h") {
      output.write(overview(COMMANDS));
      return first === undefined ? EXIT.usage : EXIT.ok;
    }
    if (first === "help") {
      output.write(rest[0] === undefined ? overview(COMMANDS) : commandHelp(find(rest[0])));
      return EXIT.ok;
    }
    if (first === "--version" || first === "-v" || first === "version") {
      const version = await packageVersion();
      output.result({ version }, () => `${version}\n`);
      return EXIT.ok;
    }
    const command = find(first);
    if (rest.includes("--help") || rest.includes("-h")) {
      output.write(commandHelp(command));
      return EXIT.ok;
    }
    const { globals, run: start } = command.parse(rest);
    context = new CliContext({ output, cwd: options.cwd, env: options.env, globals });
    return (await start(context)) ?? EXIT.ok;
  } catch (error) {
    return await report(error, output, context);
  } finally {
    await context?.[Symbol.asyncDispose]().catch((error: unknown) => output.note(`Closing failed: ${String(error)}`));
  }
}

async function report(error: unknown, output: Output, context: CliContext | undefined): Promise<number> {
  const { exitCode, code, message } = explainFailure(error, await context?.where());
  if (output.json) output.write(`${jsonText({ error: { code, message, exitCode } })}\n`);
  output.note(`txbox: ${message}`);
  if (output.verbose && error instanceof Error) output.note(stackOf(error));
  return exitCode;
}

function stackOf(error: Error): string {
  const stack = error.stack ?? String(error);
  return error.cause instanceof Error ? `${stack}\ncaused by ${stackOf(error.cause)}` : stack;
}

/** `txbox --json status` means `txbox status --json`. */
function commandFirst(argv: readonly string[]): readonly string[] {
  let at = 0;
  for (let i = 0; i < argv.length; i++) {
    const arg = argv[i] ?? "";
    const flag = Object.entries(GLOBAL_FLAGS).find(
      ([name]) => arg === `--${name}` || arg.startsWith(`--${name}=`),
    )?.[1];
    if (flag === undefined || flag === GLOBAL_FLAGS.help) break;
    if (flag.kind === "text" && !arg.includes("=")) i++;
    at = i + 1;
  }
  return [...argv.slice(at, at + 1), ...argv.slice(0, at), ...argv.slice(at + 1)];
}

function find(name: string): Command {
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (command !== undefined) return command;
  const names = [...COMMANDS.map((candidate) => candidate.name), "help"];
  if (name.startsWith("-")) {
    parseFlags([name], GLOBAL_FLAGS);
    throw new UsageError(`Which command? There are ${names.join(", ")}`);
  }
  throw new UsageError(`There is no command "${name}". ${suggestion(name, names)}`);
}

async function packageVersion(): Promise<string> {
  const text = await readFile(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
