import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { runCommand } from "./run-command.ts";
import { inCi } from "./server-or-skip.ts";
import { ServerUnavailableError } from "./server-unavailable-error.ts";

const SYSTEM_FOLDERS = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"];

export function findCommand(name: string): string | undefined {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), ...SYSTEM_FOLDERS];
  return folders.map((folder) => join(folder, name)).find(isExecutable);
}

/** The path of a command, installed from Debian when it is missing and this machine may be changed. */
export async function requireCommand(name: string, options: { apt: string }): Promise<string> {
  const found = findCommand(name);
  if (found !== undefined) return found;
  const hint = `Install it: apt-get install ${options.apt}`;
  const root = process.getuid?.() === 0;
  const mayInstall = existsSync("/etc/debian_version") && (root || (inCi() && findCommand("sudo") !== undefined));
  if (!mayInstall) throw new ServerUnavailableError(`The command ${name} is not on PATH. ${hint}`);
  const output = await aptInstall(options.apt, root ? [] : ["sudo", "-n"]);
  const installed = findCommand(name);
  if (installed === undefined) throw new ServerUnavailableError(`Could not install ${name}. ${hint}\n${output}`);
  return installed;
}

async function aptInstall(packageName: string, prefix: readonly string[]): Promise<string> {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const [command, ...first] = [...prefix, "apt-get"];
  const install = [
    ...first,
    "install",
    "-y",
    "-qq",
    "--no-install-recommends",
    "-o",
    "DPkg::Lock::Timeout=120",
    packageName,
  ];
  let output = "";
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    const updated = await runCommand(command, [...first, "update", "-qq"], { env, timeoutMs: 120_000 });
    const installed = await runCommand(command, install, { env, timeoutMs: 240_000 });
    if (installed.code === 0) return "";
    output = `${updated.stderr}${installed.stdout}${installed.stderr}`;
    await sleep(attempt * 2000);
  }
  return output;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
