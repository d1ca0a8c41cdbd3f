import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type NodeProcess, runCommand, spawnNode } from "../harness/index.ts";

export const CLI_FILE = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
export const CONFIG_URL = new URL("../../src/config/index.ts", import.meta.url).href;
export const INDEX_URL = new URL("../../src/index.ts", import.meta.url).href;

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** stdout as one JSON document. */
  readonly json: unknown;
}

export interface CliOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly file?: string;
  readonly timeoutMs?: number;
}

/** Runs `txbox` in a process of its own, with no settings but those given. */
export async function runCli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const { cwd = tmpdir(), env = {}, file = CLI_FILE, timeoutMs = 120_000 } = options;
  const result = await runCommand(process.execPath, [file, ...args], { cwd, env: { ...bareEnv(), ...env }, timeoutMs });
  return {
    ...result,
    get json(): unknown {
      return JSON.parse(result.stdout);
    },
  };
}

/** Starts `txbox` and lets it run. */
export function startCli(
  args: readonly string[],
  { cwd = tmpdir(), env = {}, timeoutMs = 60_000 }: CliOptions = {},
): NodeProcess {
  const cleared = Object.fromEntries(SETTINGS.map((name) => [name, undefined]));
  return spawnNode(CLI_FILE, args, { cwd, env: { ...cleared, NO_COLOR: "1", ...env }, timeoutMs });
}

const SETTINGS = [
  "DATABASE_URL",
  "TXBOX_DATABASE_URL",
  "TXBOX_SCHEMA",
  "TXBOX_TABLE_PREFIX",
  "TXBOX_CONFIG",
  "PGHOST",
  "PGDATABASE",
  "PGUSER",
  "PGPASSWORD",
];

function bareEnv(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !SETTINGS.includes(name));
  return { ...Object.fromEntries(kept), NO_COLOR: "1" };
}

export interface ProjectFolder extends Disposable {
  readonly path: string;
}

/** A folder with these files, removed at the end. */
export function projectFolder(files: Readonly<Record<string, string>> = {}): ProjectFolder {
  const path = mkdtempSync(join(tmpdir(), "txbox-cli-"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text);
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
