import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type NodeProcess, runCommand, spawnNode } from "../../harness/index.ts";
import type { CommandResult } from "../../harness/run-command.ts";
import { page, root } from "./markdown.ts";
import { programs } from "./snippets.ts";

const HOOKS = ["--import", join(root, "examples", "from-source.ts")];

/** The programs of a page of the docs, as text. */
export function programsOf(path: string): string[] {
  return programs(page(path)).map(({ code }) => code);
}

/** Runs a program of the docs to its end, as a reader would who put it into a file. */
export async function runProgram(
  code: string,
  { env = {}, nodeArgs = [] }: { env?: Record<string, string>; nodeArgs?: readonly string[] } = {},
): Promise<CommandResult> {
  using folder = project(code);
  const args = [...HOOKS, ...nodeArgs, folder.file];
  return await runCommand(process.execPath, args, {
    env: { ...process.env, NO_COLOR: "1", ...env },
    timeoutMs: 120_000,
  });
}

/** One that goes on until it is told to stop. */
export function startProgram(code: string, env: Record<string, string>): NodeProcess {
  const folder = project(code);
  const started = spawnNode(folder.file, [], { env, nodeArgs: HOOKS, timeoutMs: 60_000 });
  void started.exited.finally(() => folder[Symbol.dispose]());
  return started;
}

function project(code: string): Disposable & { file: string } {
  const folder = mkdtempSync(join(tmpdir(), "txbox-program-"));
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const file = join(folder, "app.ts");
  writeFileSync(file, code);
  return { file, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}
