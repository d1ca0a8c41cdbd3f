import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { errorCode } from "../../core/errors.ts";
import { verifyArchive } from "../../core/read-archive.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { ArchiveSegment } from "./segment-archive.ts";

/**
 * One file per segment. It has its name only when all of it is on the disk: until then it is a hidden file that ends in
 * ".partial". When the file is there already, it is not touched: its checksum is given instead. Throws when it is damaged.
 */
export async function openArchiveFile(
  directory: string,
  { fileName: name }: ArchiveSegment,
): Promise<WritableStream<Uint8Array> | { readonly file: string; readonly sha256: string }> {
  await mkdir(directory, { recursive: true });
  const file = join(directory, name);
  if (await isThere(file)) return { file, sha256: await verifyArchive(file) };
  // Left behind by a process that died, since this one has the segment to itself.
  for (const left of await readdir(directory))
    if (left.startsWith(`.${name}.`) && left.endsWith(".partial")) await rm(join(directory, left), { force: true });
  const partial = join(directory, `.${name}.${uuidv7()}.partial`);
  // Only the file's owner may read payloads, unless an operator allows more.
  const handle = await open(partial, "wx", 0o600);
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
