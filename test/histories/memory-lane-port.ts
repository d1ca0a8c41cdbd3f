import { Mutex } from "../../src/core/mutex.ts";
import type { BlockedKey } from "../../src/lanes/blocked-keys.ts";
import type {
  Blame,
  Entered,
  LanePort,
  Limit,
  NewPage,
  NoPage,
  ParkedPage,
  Part,
  Settlement,
  Stored,
  View,
} from "../../src/lanes/lane-port.ts";
import { nameOf, type LogRow, type MemoryLanes } from "./memory-lanes.ts";

export interface MemoryMessage extends Stored {
  readonly ref: number;
  readonly n: number;
}

export interface MemoryPart extends Part {
  readonly id: number;
  readonly fence: number;
  seq: number;
  done: number;
  fetched: number;
}

export interface PageMark {
  readonly upto: number;
}

/** Carries out a step of the database and answers: at once, late, or never. */
export type Send = <T>(step: () => T) => Promise<T>;

const NEVER_LONGER = 5;

/** A port whose database is in memory, behind a line that may lose questions and answers. */
export class MemoryLanePort implements LanePort<MemoryPart, MemoryMessage, PageMark> {
  readonly keysPerClaim: number = 4;
  readonly promotesAlone: boolean = false;
  readonly isTold: boolean = false;
  readonly #database: MemoryLanes;
  readonly #owner: string;
  readonly #send: Send;
  readonly #fenced: Mutex = new Mutex();

  constructor(database: MemoryLanes, owner: string, send: Send) {
    this.#database = database;
    this.#owner = owner;
    this.#send = send;
  }

  isPassing = (): boolean => true;
  isSlow = (): boolean => false;

  open(): Promise<void> {
    return this.#send(() => undefined);
  }

  enter(ongoing: readonly MemoryMessage[]): Promise<Entered<MemoryPart>> {
    const database = this.#database;
    return this.#send(() => {
      const parts = database.enter(this.#owner).map(({ id, fence, seq, lanes, crashes, done }) => {
        return { id, fence, seq, lanes: [...lanes], crashes, done, fetched: done };
      });
      const lanes = new Set(parts.flatMap((part) => part.lanes));
      const keys = [...database.keys.values()].flatMap(({ dueAt, ...key }) => {
        const parked = database.log.filter(
          (row) => row.state === "parked" && nameOf(keyOf(row)) === nameOf(key),
        ).length;
        return lanes.has(key.lane) ? [{ ...key, dueInMs: Math.max(0, dueAt - database.now), parked }] : [];
      });
      const still = ongoing.filter(({ ref, lane }) => lanes.has(lane) && database.row(ref).state === "parked");
      return { parts, keys, ongoing: new Set(still.map(({ ref }) => String(ref))) };
    });
  }

  tend(parts: readonly MemoryPart[]): Promise<{ view: View; renewed: boolean }> {
    const database = this.#database;
    return this.#send(() => {
      const renewed = database.renew(this.#owner, parts);
      const members = [...database.members].flatMap(([member, until]) => (until >= database.now ? [member] : []));
      const lanes = database.parts.flatMap((part) => {
        const freeMs = database.isFree(part) ? Math.max(0, database.now - part.leaseUntil) : -1;
        return part.lanes.map((lane) => ({ lane, owner: part.owner, freeMs }));
      });
      const mine = new Set(parts.flatMap((part) => part.lanes));
      const commands = database.log.some(({ command, lane }) => command && mine.has(lane));
      const rest = { paused: false, commands, scheduledInMs: null, outdated: false };
      return { view: { self: this.#owner, members, lanes, ...rest }, renewed };
    });
  }

  take(lanes: readonly number[]): Promise<void> {
    return this.#send(() => this.#database.take(this.#owner, lanes));
  }

  give(parts: readonly MemoryPart[], lanes: readonly number[] | "all"): Promise<void> {
    const known = parts.map((part) => ({ ...part }));
    return this.#send(() => {
      if (lanes === "all") this.#database.leave(this.#owner);
      else this.#database.give(known, lanes);
    });
  }

  async readNew(
    parts: readonly MemoryPart[],
    limit: Limit,
    blame: Blame,
  ): Promise<NewPage<MemoryPart, MemoryMessage, PageMark> | NoPage> {
    const [first, ...rest] = parts;
    if (
      first !== undefined &&
      rest.length > 0 &&
      parts.every(({ done, fetched }) => done === first.done && fetched === done)
    )
      return "untidy";
    for (const part of parts) {
      const rows = await this.#send(() =>
        this.#database.log.slice(part.fetched, part.fetched + limit.messages + NEVER_LONGER),
      );
      if (rows.length === 0) continue;
      const mine = rows.filter(({ lane }) => part.lanes.includes(lane)).slice(0, limit.messages);
      const upto = mine.length < limit.messages ? rows.at(-1)!.position : mine.at(-1)!.position;
      const messages = mine.map(messageOf);
      const crashes = await this.#tryAlone(part, messages, blame);
      if (crashes === undefined) return "lost";
      part.fetched = upto;
      return { part, messages, attempts: undefined, crashes, mark: { upto } };
    }
    return "nothing";
  }

  async readParked(
    part: MemoryPart,
    keys: readonly BlockedKey[],
    limit: Limit,
    blame: Blame,
  ): Promise<ParkedPage<MemoryMessage> | "lost"> {
    const names = new Map(keys.map((key) => [nameOf(key), key]));
    const rows = await this.#send(() =>
      this.#database.log.filter((row) => row.state === "parked" && names.has(nameOf(keyOf(row)))),
    );
    const page = rows.slice(0, limit.messages);
    const messages = page.map(messageOf);
    const crashes = await this.#tryAlone(part, messages, blame);
    if (crashes === undefined) return "lost";
    return {
      messages,
      keys: page.map((row) => names.get(nameOf(keyOf(row)))!),
      attempts: page.map((row) => {
        const key = names.get(nameOf(keyOf(row)))!;
        return key.head === row.position ? key.attempts : 0;
      }),
      errors: undefined,
      crashes,
      later: new Map(),
      died: new Map(),
      complete: page.length === rows.length,
    };
  }

  async #tryAlone(
    part: MemoryPart,
    [message, ...others]: readonly MemoryMessage[],
    blame: Blame,
  ): Promise<number | undefined> {
    if (message === undefined || others.length > 0 || blame === "none") return 0;
    const row = this.#database.parts.find(({ id }) => id === part.id);
    const isKnown = row?.suspect === message.ref && row.suspectCrashes > 0;
    return blame === "any" || isKnown ? this.#mark(part, message, true) : 0;
  }

  async suspect(part: MemoryPart, message: MemoryMessage, inHand: boolean): Promise<boolean> {
    return (await this.#mark(part, message, inHand)) !== undefined;
  }

  async #mark(part: MemoryPart, { ref }: MemoryMessage, inHand: boolean): Promise<number | undefined> {
    return this.#fenced.run(async () => {
      const known = { ...part };
      const crashes = await this.#send(() => this.#database.suspect(known, ref, inHand));
      if (crashes !== undefined) part.seq++;
      return crashes;
    });
  }

  async write(part: MemoryPart, settlement: Settlement<MemoryMessage, PageMark>): Promise<boolean> {
    const written = await this.#fenced.run(async () => {
      const known = { ...part };
      const landed = await this.#send(() => this.#database.write(known, settlement));
      if (landed) part.seq = known.seq + 1;
      return landed;
    });
    if (!written) return false;
    for (const { mark, messages, complete } of settlement.pages) {
      part.done = complete ? mark.upto : (messages.at(-1)?.ref ?? part.done);
    }
    return true;
  }

  async promote(): Promise<null> {
    return null;
  }

  carryOut(parts: readonly MemoryPart[]): Promise<void> {
    const known = parts.map((part) => ({ ...part }));
    return this.#send(() => this.#database.carryOut(known));
  }

  tidy(parts: readonly MemoryPart[]): Promise<void> {
    const known = parts.map((part) => ({ ...part }));
    return this.#send(() => this.#database.merge(known));
  }
}

function keyOf({ key, position }: LogRow) {
  return { stream: "s", key, single: key === null ? position : null };
}

function messageOf({ position, key, lane, n }: LogRow): MemoryMessage {
  const rest = {
    aggregateType: null,
    aggregateId: null,
    headers: { correlationId: "" },
    body: "",
    createdAt: new Date(0),
  };
  return {
    id: String(position),
    position: BigInt(position),
    ref: position,
    stream: "s",
    type: "t",
    key,
    lane,
    n,
    ...rest,
  };
}
