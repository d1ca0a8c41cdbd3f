import { existsSync } from "node:fs";
import { mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isGenerated, readAsyncapi, type Description } from "../contracts/asyncapi-document.ts";
import { ASYNCAPI_FILE, leftOver } from "../contracts/contract-files.ts";
import { describeError } from "../core/errors.ts";
import { UsageError } from "./usage-error.ts";

/** What has to be done so that a folder has these files, and no schema of an event that is no more. */
export interface FolderChange {
  readonly written: readonly string[];
  readonly removed: readonly string[];
}

export async function compareFolder(folder: string, files: ReadonlyMap<string, string>): Promise<FolderChange> {
  const earlier = existsSync(join(folder, ASYNCAPI_FILE)) ? await readJson(join(folder, ASYNCAPI_FILE)) : undefined;
  if (earlier !== undefined && !isGenerated(earlier)) {
    const fix = "Give another folder with --out, or move it away";
    throw new UsageError(`${join(folder, ASYNCAPI_FILE)} was not written by this command. ${fix}`);
  }
  const written: string[] = [];
  for (const [name, text] of files) {
    const file = join(folder, name);
    if (!existsSync(file) || (await readFile(file, "utf8")) !== text) written.push(name);
  }
  const old = earlier === undefined ? [] : leftOver(earlier, files);
  return { written, removed: old.filter((name) => existsSync(join(folder, name))) };
}

export async function changeFolder(
  folder: string,
  files: ReadonlyMap<string, string>,
  { written, removed }: FolderChange,
): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const name of removed) await rm(join(folder, name));
  for (const name of written) await writeFile(join(folder, name), files.get(name) ?? "");
}

/** The events of a folder that was exported, or of the document alone. */
export async function readDescription(path: string): Promise<Description> {
  if (!existsSync(path)) throw new UsageError(`There is no file or folder ${path}`, { command: "contracts" });
  const file = (await stat(path)).isDirectory() ? join(path, ASYNCAPI_FILE) : path;
  if (!existsSync(file)) throw new UsageError(`${path} has no ${ASYNCAPI_FILE}`, { command: "contracts" });
  return readAsyncapi(await readJson(file), file);
}

async function readJson(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as unknown;
  } catch (error) {
    throw new UsageError(`${file} cannot be read: ${describeError(error)}`, { cause: error });
  }
}
