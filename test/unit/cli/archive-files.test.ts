import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, expect, it } from "vitest";
import { replayFrom } from "../../../src/cli/archive-files.ts";
import { headLine, messageLine } from "../../../src/core/archive-lines.ts";

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), "txbox-archives-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function archive(n: number): string {
  const message = messageLine({
    position: BigInt(n * 10),
    id: `m${n}`,
    stream: "s",
    type: "t",
    key: null,
    aggregateType: null,
    aggregateId: null,
    headers: {},
    createdAt: new Date(0),
    body: "1",
  });
  const file = join(folder, `txbox.message_${n}.jsonl.gz`);
  const head = headLine({ log: "txbox.", segment: `message_${n}`, createdAt: new Date(0) });
  writeFileSync(file, gzipSync(`${head}\n${message}\n`));
  return file;
}

it("names the segments between two archives that have none, and reads no pipe", async () => {
  const files = [archive(2), archive(5)];
  execFileSync("mkfifo", [join(folder, "a.jsonl.gz")]);
  expect(await replayFrom(folder, ".")).toEqual({ files, missing: ["message_3", "message_4"] });
});
