import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { createGunzip } from "node:zlib";
import { parseEnd, parseHead, parseMessage, type ArchiveHead, type UnreadableLine } from "./archive-lines.ts";
import { errorCode, TxboxError } from "./errors.ts";
import type { Message } from "./message.ts";

/** A line of an archive with its number; the first line is the head. */
export interface ArchiveLine {
  readonly line: number;
  readonly message: Message | UnreadableLine;
}

/** Throws `invalid_archive`, or what the file system says. Reads no more than the first line needs. */
export async function readArchiveHead(file: string): Promise<ArchiveHead> {
  for await (const { text } of linesOf(file)) return at(file, 1, () => parseHead(text));
  throw cut(file, 0);
}

/** Reads all of it; the checksum in its last line, which is that of its content. Throws as `readArchive` does. */
export async function verifyArchive(file: string): Promise<string> {
  const lines = readArchive(file);
  for (;;) {
    const next = await lines.next();
    if (next.done === true) return next.value;
  }
}

/**
 * The messages of an archive file, in order. One that was cut or changed is refused with the line: what was given before
 * was in the file, but whether all of it is as it was written is known only at the end.
 */
export async function* readArchive(file: string): AsyncGenerator<ArchiveLine, string> {
  const hash = createHash("sha256");
  let [line, messages, last] = [0, 0, -1n];
  let end: { messages: number; sha256: string } | undefined;
  for await (const { text, complete } of linesOf(file)) {
    line++;
    if (end !== undefined) throw invalid(file, line, "comes after the end");
    if (line === 1) at(file, line, () => parseHead(text));
    else if ((end = at(file, line, () => parseEnd(text))) === undefined) {
      if (!complete) throw cut(file, line - 1);
      const message = at(file, line, () => parseMessage(text));
      if ("position" in message) {
        if (message.position <= last) throw invalid(file, line, "does not come after the line before it");
        last = message.position;
      }
      messages++;
      yield { line, message };
    }
    if (end === undefined) hash.update(text).update("\n");
  }
  if (end === undefined) throw cut(file, line);
  if (end.messages !== messages)
    throw invalid(file, line, `says that there are ${end.messages} messages, and there are ${messages}`);
  if (hash.digest("hex") !== end.sha256)
    throw invalid(file, line, "has another checksum than the lines before it: one of them was changed");
  return end.sha256;
}

/** Whether a last line without a line break is there is the last to be known. */
async function* linesOf(file: string): AsyncGenerator<{ text: string; complete: boolean }> {
  const source = createReadStream(file);
  const unzipped = createGunzip();
  source.on("error", (error) => unzipped.destroy(error));
  source.pipe(unzipped);
  unzipped.setEncoding("utf8");
  /** Of a line that is longer than a chunk; put together once, when its end is there. */
  let parts: string[] = [];
  let line = 0;
  try {
    for await (const chunk of unzipped as AsyncIterable<string>) {
      let from = 0;
      for (let end = chunk.indexOf("\n"); end !== -1; end = chunk.indexOf("\n", from)) {
        parts.push(chunk.slice(from, end));
        from = end + 1;
        line++;
        yield { text: parts.join(""), complete: true };
        parts = [];
      }
      if (from < chunk.length) parts.push(chunk.slice(from));
    }
  } catch (error) {
    const code = errorCode(error) ?? "";
    if (code === "Z_BUF_ERROR") throw cut(file, line);
    if (code.startsWith("Z_")) throw invalid(file, line + 1, `cannot be unpacked (${(error as Error).message})`);
    throw error;
  } finally {
    source.destroy();
  }
  if (parts.length > 0) yield { text: parts.join(""), complete: false };
}

function at<T>(file: string, line: number, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw invalid(file, line, (error as Error).message);
  }
}

function cut(file: string, line: number): TxboxError {
  return new TxboxError("invalid_archive", `${file} was cut: it ends after line ${line}, without its last line`, {
    fix: "Take another copy of the file",
  });
}

function invalid(file: string, line: number, what: string): TxboxError {
  return new TxboxError("invalid_archive", `${file} is damaged: line ${line} ${what}`, {
    fix: "Take another copy of the file",
  });
}
