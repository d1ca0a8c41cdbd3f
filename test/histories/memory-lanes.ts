import assert from "node:assert/strict";
import { LANES } from "../../src/core/lane.ts";
import type { Settlement, StoredKey } from "../../src/lanes/lane-port.ts";
import type { MemoryMessage, MemoryPart, PageMark } from "./memory-lane-port.ts";

/** A message of the log, and what became of it. */
export interface LogRow {
  readonly position: number;
  readonly key: string | null;
  readonly lane: number;
  /** Its number within the key. */
  readonly n: number;
  state: "new" | "parked" | "published" | "dead";
  command: boolean;
}

/** Progress over some lanes. */
export interface PartRow {
  readonly id: number;
  owner: string | null;
  /** Another number after every change of owner and every load. */
  fence: number;
  seq: number;
  lanes: number[];
  done: number;
  leaseUntil: number;
  crashes: number;
  suspect: number | undefined;
  suspectInHand: boolean;
  suspectCrashes: number;
  lastWrite: string;
}

export type KeyRow = Omit<StoredKey, "dueInMs" | "parked"> & { dueAt: number };

/** A database in memory: what is in it changes in single steps, each of them fenced. */
export class MemoryLanes {
  now = 0;
  readonly log: LogRow[] = [];
  parts: PartRow[] = [];
  readonly members = new Map<string, number>();
  readonly keys = new Map<string, KeyRow>();
  readonly leaseMs: number;
  #ids = 0;

  constructor(leaseMs: number) {
    this.leaseMs = leaseMs;
    const lanes = Array.from({ length: LANES }, (_, lane) => lane);
    this.parts.push(this.#part({ lanes }));
  }

  #part(given: Partial<PartRow>): PartRow {
    const empty = { owner: null, seq: 0, lanes: [], done: 0, leaseUntil: this.now, crashes: 0, lastWrite: "" };
    const suspect = { suspect: undefined, suspectInHand: false, suspectCrashes: 0 };
    return { ...empty, ...suspect, ...given, id: ++this.#ids, fence: ++this.#ids };
  }

  commit(key: string | null, lane: number, n: number): void {
    this.log.push({ position: this.log.length + 1, key, lane, n, state: "new", command: false });
  }

  row(position: number): LogRow {
    return this.log[position - 1]!;
  }

  /** Lanes of dead owners, and those that were given away. */
  isFree({ owner, leaseUntil }: PartRow): boolean {
    return owner === null || leaseUntil < this.now;
  }

  enter(owner: string): PartRow[] {
    this.members.set(owner, this.now + this.leaseMs);
    const mine = this.parts.filter((part) => part.owner === owner);
    for (const part of mine) this.#raise(part).leaseUntil = this.now + this.leaseMs;
    return mine;
  }

  renew(owner: string, parts: readonly MemoryPart[]): boolean {
    if (!this.members.has(owner)) return false;
    this.members.set(owner, this.now + this.leaseMs);
    let all = true;
    for (const { id, fence, seq } of parts) {
      const row = this.parts.find((part) => part.id === id);
      if (row === undefined || row.fence !== fence || row.seq < seq || row.owner !== owner) all = false;
      else row.leaseUntil = this.now + this.leaseMs;
    }
    return all;
  }

  take(owner: string, lanes: readonly number[]): void {
    for (const part of this.parts.slice()) {
      const wanted = part.lanes.filter((lane) => lanes.includes(lane));
      if (wanted.length === 0 || !this.isFree(part)) continue;
      const died = part.owner === null ? 0 : 1;
      const taken = wanted.length === part.lanes.length ? part : this.#split(part, wanted);
      this.#raise(taken);
      taken.owner = owner;
      taken.leaseUntil = this.now + this.leaseMs;
      taken.crashes += died;
      if (taken.suspect !== undefined && taken.suspectInHand) taken.suspectCrashes += died;
    }
  }

  give(parts: readonly MemoryPart[], lanes: readonly number[]): void {
    for (const held of parts) {
      const part = this.#held(held);
      const given = part?.lanes.filter((lane) => lanes.includes(lane)) ?? [];
      if (part === undefined || given.length === 0) continue;
      const free = given.length === part.lanes.length ? part : this.#split(part, given);
      this.#raise(free);
      free.owner = null;
      free.leaseUntil = this.now;
    }
  }

  leave(owner: string): void {
    this.members.delete(owner);
    for (const part of this.parts) {
      if (part.owner !== owner) continue;
      this.#raise(part).owner = null;
      part.leaseUntil = this.now;
    }
  }

  merge(parts: readonly MemoryPart[]): void {
    const rows = parts.map((part) => this.#held(part));
    const [first, ...rest] = rows;
    if (first === undefined || rows.some((row) => row === undefined || row.done !== first.done)) return;
    for (const row of rest) {
      first.lanes = [...first.lanes, ...row!.lanes];
      first.crashes = Math.max(first.crashes, row!.crashes);
    }
    this.#raise(first);
    this.parts = this.parts.filter((part) => !rest.includes(part));
  }

  suspect(held: MemoryPart, position: number, inHand: boolean): number | undefined {
    const part = this.#held(held);
    if (part === undefined) return undefined;
    if (part.suspect !== position) part.suspectCrashes = 0;
    Object.assign(part, { suspect: position, suspectInHand: inHand });
    part.seq++;
    return part.suspectCrashes;
  }

  /** All or nothing; true also when the same was written before. */
  write(held: MemoryPart, settlement: Settlement<MemoryMessage, PageMark>): boolean {
    const part = this.#held(held);
    if (part === undefined) {
      return this.parts.some(({ id, lastWrite }) => id === held.id && lastWrite === settlement.token);
    }
    for (const { mark, messages, published, complete } of settlement.pages) {
      for (const { ref } of published) this.#publish(this.row(ref), "new");
      part.done = complete ? mark.upto : (messages.at(-1)?.ref ?? part.done);
    }
    for (const { message } of settlement.park) this.#move(message, "new", "parked");
    for (const { message } of settlement.retried) this.#move(message, "parked", "parked");
    for (const { message, published } of settlement.unpark) {
      const row = this.row(message.ref);
      // What is parked and freed by the same settlement was never written as parked.
      assert.ok(row.state === "parked" || row.state === "new", `${row.position} is freed, and is ${row.state}`);
      if (published) this.#publish(row, row.state);
    }
    for (const { message } of settlement.dead) this.row(message.ref).state = "dead";
    for (const key of settlement.block) {
      const { dueInMs, parked: _, ...row } = key;
      this.keys.set(nameOf(key), { ...row, dueAt: this.now + dueInMs });
    }
    for (const key of settlement.unblock) this.keys.delete(nameOf(key));
    if (settlement.clearCrashes) part.crashes = 0;
    Object.assign(part, { suspect: undefined, suspectCrashes: 0, lastWrite: settlement.token });
    part.seq++;
    part.leaseUntil = this.now + this.leaseMs;
    return true;
  }

  /** Dead messages of these lanes that an operator wants back are parked again. */
  carryOut(parts: readonly MemoryPart[]): void {
    for (const held of parts) {
      const part = this.#held(held);
      if (part === undefined) continue;
      part.seq++;
      for (const row of this.log) {
        if (!row.command || !part.lanes.includes(row.lane)) continue;
        row.command = false;
        row.state = "parked";
        const key = { lane: row.lane, stream: "s", key: row.key, single: row.key === null ? row.position : null };
        const rest = { head: row.position, attempts: 0, lastError: undefined, dueAt: this.now };
        const held = this.log.some((other) => other.key === row.key && other.state === "dead" && other !== row);
        this.keys.set(nameOf(key), {
          ...key,
          ...rest,
          held: held && row.key !== null && this.keys.get(nameOf(key))?.held === true,
        });
      }
    }
  }

  #publish(row: LogRow, from: LogRow["state"]): void {
    assert.equal(row.state, from, `message ${row.n} of ${row.key} is settled as published, and is ${row.state}`);
    row.state = "published";
  }

  #move({ ref }: MemoryMessage, from: LogRow["state"], to: LogRow["state"]): void {
    const row = this.row(ref);
    assert.equal(row.state, from, `message ${row.n} of ${row.key} is settled as ${to}, and is ${row.state}`);
    row.state = to;
  }

  #held({ id, fence, seq }: MemoryPart): PartRow | undefined {
    return this.parts.find((part) => part.id === id && part.fence === fence && part.seq === seq);
  }

  #raise(part: PartRow): PartRow {
    part.fence = ++this.#ids;
    part.seq++;
    return part;
  }

  /** The lanes get a part of their own, with the same progress. */
  #split(part: PartRow, lanes: readonly number[]): PartRow {
    this.#raise(part);
    const own = this.#part({ ...part, lanes: [...lanes] });
    part.lanes = part.lanes.filter((lane) => !lanes.includes(lane));
    this.parts.push(own);
    return own;
  }
}

export function nameOf({ stream, key, single }: Pick<StoredKey, "stream" | "key" | "single">): string {
  return key === null ? `\0${String(single)}` : `${stream}\0${key}`;
}
