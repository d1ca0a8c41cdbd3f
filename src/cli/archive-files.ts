import { readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { errorCode } from "../core/errors.ts";
import { readArchive, readArchiveHead } from "../core/read-archive.ts";
import { parseMoment } from "./parse-time.ts";
import { UsageError } from "./usage-error.ts";

/** What `--from` names: archive files, in the order of their messages, or the log from a time on. */
export type ReplayFrom = { readonly files: readonly string[] } | { readonly since: Date };

/** A file, a folder of archives, or a time. */
export async function replayFrom(cwd: string, text: string): Promise<ReplayFrom> {
  const path = resolve(cwd, text);
  const found = await stat(path).catch((error: unknown) => {
    if (errorCode(error) === "ENOENT" || errorCode(error) === "ENAMETOOLONG") return undefined;
    throw error;
  });
  if (found?.isDirectory() === true) return { files: await inOrder(path) };
  if (found !== undefined) return { files: [path] };
  return { since: parseMoment("--from", text, "replay", "an archive file, a folder of them, ") };
}

/** Archives of one log, by their first positions. */
async function inOrder(directory: string): Promise<string[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".jsonl.gz") && !name.startsWith("."));
  if (names.length === 0)
    throw new UsageError(`There is no archive (*.jsonl.gz) in ${directory}`, { command: "replay" });
  const archives: { file: string; log: string; position: bigint }[] = [];
  for (const name of names) {
    const file = join(directory, name);
    const { log } = await readArchiveHead(file);
    const position = await firstPosition(file);
    // One without messages has nothing to send; whether it is whole is still asked.
    archives.push({ file, log, position: position ?? -1n });
  }
  const logs = new Set(archives.map(({ log }) => log));
  if (logs.size > 1)
    throw new UsageError(`${directory} has archives of several logs: ${[...logs].join(", ")}. Name a file instead`, {
      command: "replay",
    });
  return archives.toSorted((a, b) => (a.position < b.position ? -1 : 1)).map(({ file }) => file);
}

async function firstPosition(file: string): Promise<bigint | undefined> {
  for await (const { message } of readArchive(file)) if ("position" in message) return message.position;
  return undefined;
}
