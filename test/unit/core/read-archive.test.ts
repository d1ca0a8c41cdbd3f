import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { endLine, headLine, messageLine } from "../../../src/core/archive-lines.ts";
import type { Message } from "../../../src/core/message.ts";
import { readArchive, readArchiveHead } from "../../../src/core/read-archive.ts";

let folder: string;
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), "txbox-archive-"))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const HEAD = { log: "txbox.", segment: "message_3", createdAt: new Date("2026-03-01T00:00:00Z") };

function message(n: number, more: Partial<Message> = {}): Message {
  return {
    id: `id-${n}`,
    position: BigInt(n),
    stream: "orders",
    type: "created",
    key: "k",
    aggregateType: null,
    aggregateId: null,
    headers: { correlationId: `id-${n}` },
    createdAt: new Date(1_700_000_000_000 + n),
    body: `{"n":${n}}`,
    ...more,
  };
}

function textOf(messages: readonly Message[]): string {
  const lines = `${[headLine(HEAD), ...messages.map(messageLine)].join("\n")}\n`;
  return `${lines}${endLine(messages.length, createHash("sha256").update(lines).digest("hex"))}\n`;
}

function write(text: string | Buffer): string {
  const file = join(folder, `${Math.random()}.jsonl.gz`);
  writeFileSync(file, typeof text === "string" ? gzipSync(text) : text);
  return file;
}

async function read(file: string) {
  const found = [];
  for await (const { message: one } of readArchive(file)) found.push(one);
  return found;
}

describe("an archive", () => {
  it("gives back every message as it was, to the last digit", async () => {
    const messages = [
      message(1, { body: '{"a": 12345678901234567890.10,  "payload":{"b":1.0}}' }),
      message(2, { key: null, body: '"line\\nbreak"', headers: { correlationId: "c", payload: 1, '","payload":': 2 } }),
      message(3, { body: '{\n  "pretty": true\r\n}' }),
      message(4, {
        body: new Uint8Array([0, 255, 10, 13]),
        headers: { contentType: "application/x", correlationId: "d" },
      }),
      message(5, {
        id: "\u2028 \ud83d\ude00 \u0007",
        aggregateType: "order",
        aggregateId: "7",
        headers: JSON.parse('{"__proto__":{"x":1},"7":1}'),
      }),
      message(6, { position: 2n ** 62n, body: "null" }),
    ];
    const file = write(textOf(messages));
    expect(await read(file)).toEqual(messages);
    expect(await readArchiveHead(file)).toEqual(HEAD);
  });

  it("reads long lines in time that grows with them, and no faster", async () => {
    const messages = [message(1, { body: `"${"x".repeat(30_000_000)}"` }), message(2)];
    const file = write(textOf(messages));
    const startedAt = process.cpuUsage();
    expect(await read(file)).toEqual(messages);
    const { user, system } = process.cpuUsage(startedAt);
    // Put together anew with each chunk, it would take 20 s.
    expect((user + system) / 1e6).toBeLessThan(10);
  });

  it("says of a row that is no message why, and goes on", async () => {
    const broken = {
      ...message(1),
      get body(): string {
        throw new Error("payload and body are null");
      },
    };
    const found = await read(write(textOf([broken, message(2)])));
    expect(found).toEqual([{ id: "id-1", unreadable: "Error: payload and body are null" }, message(2)]);
  });

  it("is refused with the line when it was cut, wherever that was", async () => {
    const messages = Array.from({ length: 50 }, (_, i) => message(i + 1));
    const text = textOf(messages);
    const whole = gzipSync(text);
    for (const end of [0, 9, 10, 40, whole.length - 30, whole.length - 9, whole.length - 1])
      await expect(read(write(whole.subarray(0, end))), `${end} bytes`).rejects.toThrow(/ends after line \d+/);
    const lines = text.split("\n");
    // The packing is whole, the text is not.
    await expect(read(write(`${lines.slice(0, 11).join("\n")}\n`))).rejects.toThrow("ends after line 11");
    await expect(read(write(text.slice(0, text.indexOf("id-20") + 3)))).rejects.toThrow("ends after line 20");
  });

  it("is refused with the line when it was changed", async () => {
    const text = textOf([message(1), message(2), message(3)]);
    const changes: [string, RegExp][] = [
      [text.replace('{"n":2}', '{"n":3}'), /line 5 has another checksum/],
      [text.replace('{"n":2}', '{"n":3'), /line 3 is not JSON/],
      [text.replace('"position":"3"', '"position":"2"'), /line 4 does not come after/],
      [text.replace(`${messageLine(message(2))}\n`, ""), /line 4 says that there are 3 messages, and there are 2/],
      [text.replace('"id":"id-3",', ""), /line 4 has no id/],
      [`${text}${messageLine(message(4))}\n`, /line 6 comes after the end/],
      [text.replace('"version":1', '"version":2'), /line 1 has version 2/],
      [text.slice(text.indexOf("\n") + 1), /line 1 is not the beginning/],
    ];
    for (const [changed, why] of changes) await expect(read(write(changed))).rejects.toThrow(why);
    const packed = Buffer.from(gzipSync(text));
    packed[packed.length - 20] = (packed[packed.length - 20] ?? 0) ^ 0xff;
    await expect(read(write(packed))).rejects.toMatchObject({ code: "invalid_archive" });
    await expect(read(write(Buffer.from("not packed at all, and long enough")))).rejects.toThrow(
      /line 1 cannot be unpacked/,
    );
    await expect(read(join(folder, "none"))).rejects.toMatchObject({ code: "ENOENT" });
  });

  it("can be read by zcat and any JSON parser", () => {
    const lines = gunzipSync(readFileSync(write(textOf([message(1)]))))
      .toString()
      .trimEnd()
      .split("\n");
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { archive: "txbox", version: 1, log: "txbox.", segment: "message_3" },
      { position: "1", id: "id-1", stream: "orders", type: "created", key: "k", payload: { n: 1 } },
      { end: { messages: 1 } },
    ]);
  });
});
