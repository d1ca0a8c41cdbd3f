import type { Dirent } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { errorCode } from "../core/errors.ts";
import { readArchive, readArchiveHead } from "../core/read-archive.ts";
import { parseMoment } from "./parse-time.ts";
import { UsageError } from "./usage-error.ts";

const MOST_NAMED = 10;

/**
 * What `--from` names: archive files, in the order of their messages, with the segments between them that have none; or
 * the log from a time on.
 */
export type ReplayFrom =
  | { readonly files: readonly string[]; readonly missing: readonly string[] }
  | { readonly since: Date };

/** A file, a folder of archives, or a time. */
export async function replayFrom(cwd: string, text: string): Promise<ReplayFrom> {
  const path = resolve(cwd, text);
  const found = await stat(path).catch((error: unknown) => {
    if (errorCode(error) === "ENOENT" || errorCode(error) === "ENAMETOOLONG") return undefined;
    throw error;
  });
  if (found?.isDirectory() === true) return inOrder(path);
  if (found !== undefined) return { files: [path], missing: [] };
  return { since: parseMoment("--from", text, "replay", "an archive file, a folder of them, ") };
}

/** Archives of one log, by their first positions. */
async function inOrder(directory: string): Promise<{ files: string[]; missing: string[] }> {
  const entries = await readdir(directory, { withFileTypes: true });
  const names = entries
    .filter((entry) => !entry.name.startsWith(".") && entry.name.endsWith(".jsonl.gz") && !isSpecial(entry))
    .map(({ name }) => name);
  if (names.length === 0)
    throw new UsageError(`There is no archive (*.jsonl.gz) in ${directory}`, { command: "replay" });
  const archives: { file: string; log: string; segment: string; position: bigint }[] = [];
  for (const name of names) {
    const file = join(directory, name);
    const { log, segment } = await readArchiveHead(file);
    const position = await firstPosition(file);
    // One without messages has nothing to send; whether it is whole is still asked.
    archives.push({ file, log, segment, position: position ?? -1n });
  }
  const logs = new Set(archives.map(({ log }) => log));
  if (logs.size > 1)
    throw new UsageError(`${directory} has archives of several logs: ${[...logs].join(", ")}. Name a file instead`, {
      command: "replay",
    });
  const files = archives.toSorted((a, b) => (a.position < b.position ? -1 : 1)).map(({ file }) => file);
  return { files, missing: missingBetween(archives.map(({ segment }) => segment)) };
}

/** A pipe or a device may never end. */
function isSpecial(entry: Dirent): boolean {
  return !entry.isFile() && !entry.isSymbolicLink();
}

/** Segments are numbered: those between the first and the last that have no archive here. */
function missingBetween(segments: readonly string[]): string[] {
  const numbers = segments.map((segment) => Number(/_(\d+)$/.exec(segment)?.[1])).filter((n) => !Number.isNaN(n));
  const have = new Set(numbers);
  const missing: string[] = [];
  for (let n = Math.min(...numbers) + 1; n < Math.max(...numbers) && missing.length < MOST_NAMED; n++)
    if (!have.has(n)) missing.push(`message_${n}`);
  return missing;
}

async function firstPosition(file: string): Promise<bigint | undefined> {
  for await (const { message } of readArchive(file)) if ("position" in message) return message.position;
  return undefined;
}
