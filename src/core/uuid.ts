import { randomFillSync } from "node:crypto";

const pool = new Uint8Array(4096);
let used = pool.length;
let lastMs = 0;
let counter = 0;

const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

function randomByte(): number {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  return pool[used++]!;
}

/** UUIDv7 (RFC 9562) that rises within a process: 12 bits of counter after the millisecond, 62 random bits. */
export function uuidv7(nowMs: number = Date.now()): string {
  if (nowMs > lastMs) {
    lastMs = nowMs;
    counter = ((randomByte() & 0x07) << 8) | randomByte();
  } else if (++counter > 0xfff) {
    lastMs++;
    counter = 0;
  }
  const time = lastMs.toString(16).padStart(12, "0");
  const rest = HEX[0x70 | (counter >> 8)]! + HEX[counter & 0xff]!;
  let tail = HEX[0x80 | (randomByte() & 0x3f)]! + HEX[randomByte()]! + "-";
  for (let i = 0; i < 6; i++) tail += HEX[randomByte()]!;
  return `${time.slice(0, 8)}-${time.slice(8)}-${rest}-${tail}`;
}

/** A UUIDv7 of another time than now, with a random counter; leaves the rising sequence of the process alone. */
export function uuidv7At(timeMs: number): string {
  const time = timeMs.toString(16).padStart(12, "0");
  let tail =
    HEX[0x70 | (randomByte() & 0x0f)]! +
    HEX[randomByte()]! +
    "-" +
    HEX[0x80 | (randomByte() & 0x3f)]! +
    HEX[randomByte()]! +
    "-";
  for (let i = 0; i < 6; i++) tail += HEX[randomByte()]!;
  return `${time.slice(0, 8)}-${time.slice(8)}-${tail}`;
}

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;

/** Milliseconds since the epoch inside a UUIDv7; undefined for any other id. */
export function uuidv7Time(id: string): number | undefined {
  if (!UUID_V7.test(id)) return undefined;
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}
