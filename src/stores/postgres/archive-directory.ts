import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { errorCode, TxboxError } from "../../core/errors.ts";
import { readArchive, readArchiveHead } from "../../core/read-archive.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { ArchiveSegment } from "./segment-archive.ts";

/**
 * One file per segment. It has its name only when all of it is on the disk: until then it is a hidden file that ends in
 * ".partial". Undefined: the file is there already, whole and of this segment.
 */
export async function openArchiveFile(
  directory: string,
  segment: ArchiveSegment,
): Promise<WritableStream<Uint8Array> | undefined> {
  await mkdir(directory, { recursive: true });
  const { fileName: name } = segment;
  const file = join(directory, name);
  if (await isThere(file)) {
    await requireSame(file, segment);
    return undefined;
  }
  // Left behind by a process that died, since this one has the segment to itself.
  for (const left of await readdir(directory))
    if (left.startsWith(`.${name}.`) && left.endsWith(".partial")) await rm(join(directory, left), { force: true });
  const partial = join(directory, `.${name}.${uuidv7()}.partial`);
  const handle = await open(partial, "wx");
  return new WritableStream({
    write: (chunk) => writeAll(handle, chunk),
    async close() {
      await handle.sync();
      await handle.close();
      await rename(partial, file);
      await syncDirectory(directory);
    },
    async abort() {
      await handle.close().catch(() => undefined);
      await rm(partial, { force: true });
    },
  });
}

async function writeAll(handle: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let written = 0; written < chunk.length;)
    written += (await handle.write(chunk, written, chunk.length - written)).bytesWritten;
}

/** So that the name survives a crash as well. Not every system lets a directory be opened. */
async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r").catch(() => undefined);
  try {
    await handle?.sync().catch(() => undefined);
  } finally {
    await handle?.close();
  }
}

async function isThere(file: string): Promise<boolean> {
  try {
    await stat(file);
    return true;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    throw error;
  }
}

/** A process died between the archive and its note in the database; or a file of another log has the name. */
async function requireSame(file: string, { log, segment, createdAt }: ArchiveSegment): Promise<void> {
  const head = await readArchiveHead(file);
  if (head.log !== log || head.segment !== segment || head.createdAt.getTime() !== createdAt.getTime()) {
    throw new TxboxError("invalid_archive", `${file} is the archive of another log`, {
      field: "archive",
      fix: "Give each database a directory of its own, or move the file away",
    });
  }
  for await (const _ of readArchive(file));
}
