import { expect, test } from "vitest";
import { COMMANDS } from "../../../src/cli/commands/index.ts";
import { type Command, GLOBAL_FLAGS } from "../../../src/cli/command.ts";
import type { Flag } from "../../../src/cli/parse-flags.ts";
import { EXIT_MEANINGS } from "../../../src/cli/exit-code.ts";
import { freePort } from "../../harness/index.ts";
import { createRandom, type Random } from "../../soak/random.ts";
import { captureCli } from "../../support/captured-cli.ts";
import { projectFolder, runCli } from "../../support/run-cli.ts";

const RUNS = 3000;
const PROCESSES = 10;
const SEED = Number(process.env["TXBOX_FUZZ_SEED"] ?? 1);
const SECRET = "S3cr3t";
const RAW = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;
const CODES = EXIT_MEANINGS.map(([code]) => code);

/** Without the demo, which takes seconds. */
const PICKED = COMMANDS.filter(({ name }) => name !== "demo");
const SUBCOMMANDS: Readonly<Record<string, readonly string[]>> = {
  dead: ["list", "show", "requeue", "discard"],
  relays: ["list", "pause", "resume", "rewind", "drop"],
};
const FLAGS = [...COMMANDS.flatMap(({ flags }) => Object.keys(flags)), ...Object.keys(GLOBAL_FLAGS)];

function words(port: number): readonly string[] {
  return [
    "",
    "-",
    "--",
    "-h",
    "-x",
    "0",
    "1",
    "-1",
    "42",
    "1e99",
    "99999999999999999999",
    "now",
    "earliest",
    "2026-01-31T08:00:00Z",
    "stdout",
    "dead",
    "a,b",
    ",",
    "=",
    "--=",
    "__proto__",
    "constructor",
    "toString",
    "\u001B[2J\u202E\n",
    "\uD800",
    "x".repeat(5000),
    "/",
    "..",
    "nothing.mjs",
    "throws.mjs",
    "wrong.mjs",
    "rejects.mjs",
    `postgres://u:${SECRET}@127.0.0.1:${port}/db`,
    `postgres://u:12/${SECRET}@h/db`,
    `postgres://u:${SECRET} with blanks@h:x/db`,
    `host=127.0.0.1 port=${port} password=${SECRET}`,
    `jdbc:postgresql://h/db?password=${SECRET}`,
    `mongodb://u:${SECRET}@h/db?bogus=1`,
    `mongodb://u:${SECRET}/@h/db`,
    `amqp://u:${SECRET}@h`,
  ];
}

const FILES = {
  "throws.mjs": `throw new Error("cannot connect to amqp://u:${SECRET}@h");`,
  "wrong.mjs": `export default { database: { url: "postgres://u:${SECRET}/x@h" } };`,
  "rejects.mjs": `export default { store: async () => { throw "postgres://u:${SECRET}@h"; }, relays: { a: { publisher: () => { throw new Error("amqp://u:${SECRET}@h"); } } } };`,
};

/** Mostly right, so that it gets past the flags: a command, its own flags, values of their kind. */
function commandLine(random: Random, known: readonly string[]): string[] {
  const command = random.pick(PICKED);
  const argv = random.chance(0.95) ? [command.name] : [];
  const subcommands = SUBCOMMANDS[command.name];
  if (subcommands !== undefined && random.chance(0.95)) argv.push(random.pick(subcommands));
  if (command.words === true && random.chance(0.5)) argv.push(random.chance(0.7) ? "a" : random.pick(known));
  for (let n = random.int(0, 4); n > 0; n--) {
    const junk = [[random.pick(known)], [`--${random.pick(FLAGS)}`], [mutated(random, `--${random.pick(FLAGS)}`)]];
    const part = random.chance(0.85) ? flagOf(random, command, known) : random.pick(junk);
    argv.splice(random.chance(0.1) ? 0 : argv.length, 0, ...part);
  }
  return argv;
}

function flagOf(random: Random, { flags }: Command, known: readonly string[]): string[] {
  const [name, flag] = random.pick(
    Object.entries<Flag>(random.chance(0.6) ? { json: GLOBAL_FLAGS.json, ...flags } : GLOBAL_FLAGS),
  );
  if (flag.kind === "switch" || (flag.kind === "seconds" && random.chance(0.5))) return [`--${name}`];
  const choices = flag.kind === "text" ? (flag.choices ?? ["a"]) : flag.kind === "list" ? ["a,b"] : ["7"];
  const value = random.chance(0.7) ? random.pick(choices) : random.pick(known);
  return random.chance(0.5) ? [`--${name}=${value}`] : [`--${name}`, value];
}

function mutated(random: Random, text: string): string {
  const at = random.int(0, text.length);
  return random.chance(0.5) ? text.slice(0, at) + text.slice(at + 1) : `${text.slice(0, at)}x${text.slice(at)}`;
}

/** JSON keeps the indentation of its own, tables and help their lines. */
function expectSound(
  argv: readonly string[],
  { code, stdout, stderr }: { code: number | null; stdout: string; stderr: string },
): void {
  const told = JSON.stringify({ argv, code, stdout: stdout.slice(0, 500), stderr });
  expect(CODES, told).toContain(code);
  // SQL for a role of that name is what was asked for.
  const asked = code === 0 && argv.includes("grants") ? "" : stdout;
  expect(asked + stderr, told).not.toContain(SECRET);
  expect((stdout + stderr).replaceAll(/[\n\t]/g, ""), told).not.toMatch(RAW);
  expect(stderr, told).not.toMatch(/TypeError|RangeError|ReferenceError|is not a function|Cannot read prop/);
  expect(argv.includes("--verbose") || !/^ +at /m.test(stderr), told).toBe(true);
  expect(code === 0 || argv.length === 0 || /^txbox: ./m.test(stderr), told).toBe(true);
}

test(`${RUNS} random command lines end with a documented code, without a stack or a secret (seed ${SEED})`, async () => {
  const random = createRandom(SEED);
  using folder = projectFolder(FILES);
  const port = await freePort();
  const [known, away] = [words(port), `postgres://u:${SECRET}@127.0.0.1:${port}/db`];
  const seen = new Set<number>();
  for (let n = 0; n < RUNS; n++) {
    const argv = commandLine(random, known);
    const env = random.pick([{}, { DATABASE_URL: away }, { DATABASE_URL: away }, { DATABASE_URL: random.pick(known) }]);
    const result = await captureCli(argv, { cwd: folder.path, env });
    expectSound(argv, result);
    seen.add(result.code);
  }
  // The generator is of use only if it gets past the flags.
  for (const code of [0, 2, 4]) expect(seen).toContain(code);
}, 120_000);

test(`${PROCESSES} of them in processes of their own (seed ${SEED})`, async () => {
  const random = createRandom(SEED + 1);
  using folder = projectFolder(FILES);
  const known = words(await freePort()).filter((word) => !word.includes("\0"));
  for (let n = 0; n < PROCESSES; n++) {
    const argv = commandLine(random, known);
    expectSound(argv, await runCli(argv, { cwd: folder.path }));
  }
}, 120_000);
