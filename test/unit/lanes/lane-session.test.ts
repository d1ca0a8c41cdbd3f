import { describe, expect, it } from "vitest";
import type { Clock, Outcome } from "../../../src/core/contracts.ts";
import { LaneSession } from "../../../src/lanes/lane-session.ts";
import { MemoryLanePort, type Send } from "../../histories/memory-lane-port.ts";
import { MemoryLanes } from "../../histories/memory-lanes.ts";

const PUBLISHED: Outcome = { status: "published" };
const WAITING: Outcome = { status: "waiting" };
const RUNNING: Outcome = { status: "running" };
const retry = (delayMs: number): Outcome => ({ status: "retry", error: "no", delayMs, attempts: 1 });
const dead = (block = false): Outcome => ({ status: "dead", error: "never", attempts: 1, block });

/** A process over a database in memory, whose line can be held. */
async function processOf(database: MemoryLanes, owner: string) {
  let held: (() => void)[] | undefined;
  let failing = 0;
  const send: Send = async (step) => {
    if (held !== undefined) await new Promise<void>((resolve) => held!.push(resolve));
    const answer = step();
    if (failing > 0) {
      failing--;
      throw new Error("the answer is lost");
    }
    return answer;
  };
  const clock: Clock = {
    monotonic: () => database.now,
    sleep: async (ms) => void (database.now += ms),
  };
  const port = new MemoryLanePort(database, owner, send);
  const relay = { relay: "r", owner, leaseMs: 10_000, start: "earliest" as const, streams: undefined, unordered: [] };
  let woken = 0;
  const options = { ...relay, batch: { messages: 10, bytes: 1e6 }, maxParked: 100, onNews: () => void woken++ };
  const session = new LaneSession(port, options, clock);
  await session.join();
  return {
    session,
    woken: () => woken,
    hold: () => (held = []),
    /** Lets the first of what is held go. */
    step: async () => {
      held?.shift()?.();
      await turn();
    },
    release: async () => {
      const waiting = held ?? [];
      held = undefined;
      for (const go of waiting) go();
      await turn();
    },
    /** The next answers are lost, after the database has done what it was asked. */
    loseAnswers: (count: number) => (failing = count),
  };
}

async function turn(): Promise<void> {
  for (let i = 0; i < 50; i++) await Promise.resolve();
}

/** A claim of a failed key, for longer than chores wait, with a command to be carried out. */
async function withLongAttempt() {
  const database = new MemoryLanes(10_000);
  const process = await processOf(database, "one");
  const { session } = process;
  database.commit("a", 1, 1);
  database.commit("a", 1, 2);
  database.commit("b", 2, 1);
  const first = (await session.claim("new"))!;
  await session.settle(first, [retry(0), WAITING, dead()]);
  const claim = (await session.claim("retry"))!;
  expect(claim.messages.map(({ n }) => n)).toEqual([1, 2]);
  database.row(3).command = true;
  await session.tend();
  expect(await session.claim("new"), "chores wait for the attempt at first").toBeUndefined();
  database.now += 1500;
  return { database, ...process, claim };
}

describe("an attempt that goes on while chores are done", () => {
  it("is settled as ever", async () => {
    const { session, claim, database } = await withLongAttempt();
    await session.claim("new");
    expect(database.row(3).command).toBe(false);
    expect(session.isCurrent(claim)).toBe(true);
    await session.settle(claim, [PUBLISHED, PUBLISHED]);
    expect([database.row(1).state, database.row(2).state]).toEqual(["published", "published"]);
  });

  it("may be told to take long meanwhile, and its key waits for it", async () => {
    const { session, claim, database, hold, release } = await withLongAttempt();
    hold();
    const claiming = session.claim("new");
    await turn();
    const own = session.detach(claim, 0);
    const settled = session.settle(claim, [RUNNING, WAITING]);
    await release();
    await Promise.all([claiming, settled]);
    expect(session.isCurrent(own)).toBe(true);
    expect(
      (await session.claim("retry"))?.messages.map(({ key }) => key),
      "the key of the attempt waits",
    ).not.toContain("a");
    await session.settle(own, [PUBLISHED]);
    expect(database.row(1).state).toBe("published");
    database.now += 10;
    expect((await session.claim("retry"))?.messages.map(({ n }) => n)).toContain(2);
  });

  it("stays current though the lease is renewed while everything is loaded", async () => {
    const { session, claim, hold, step, release } = await withLongAttempt();
    hold();
    const claiming = session.claim("new");
    await turn();
    // The command is carried out; what is held now is the load.
    await step();
    // Its answer is about the parts from before the load.
    const tending = session.tend();
    await turn();
    await release();
    await Promise.all([claiming, tending]);
    expect(session.isCurrent(claim)).toBe(true);
    await session.settle(claim, [PUBLISHED, PUBLISHED]);
  });
});

describe("a settlement whose answer is lost", () => {
  it("is written once and reported as written", async () => {
    const database = new MemoryLanes(10_000);
    const { session, loseAnswers } = await processOf(database, "one");
    database.commit("a", 1, 1);
    const claim = (await session.claim("new"))!;
    loseAnswers(2);
    await session.settle(claim, [PUBLISHED]);
    expect(database.row(1).state).toBe("published");
    expect(session.isCurrent(claim)).toBe(true);
    expect(await session.claim("new")).toBeUndefined();
  });
});

describe("deaths", () => {
  it("are not forgotten while what may have caused them is in hand", async () => {
    const database = new MemoryLanes(1000);
    for (let n = 1; n <= 60; n++) database.commit(`k${n}`, n % 64, 1);
    const mortal = await processOf(database, "mortal");
    await mortal.session.claim("new");
    database.now += 20_000;
    const { session } = await processOf(database, "heir");
    const slow = (await session.claim("new"))!;
    const own = session.detach(slow, 0);
    await session.settle(slow, [RUNNING, ...slow.messages.slice(1).map(() => PUBLISHED)]);
    for (let i = 0; i < 3; i++) {
      const next = (await session.claim("new"))!;
      await session.settle(
        next,
        next.messages.map(() => PUBLISHED),
      );
    }
    const crashes = () => Math.max(...database.parts.map((part) => part.crashes));
    expect(crashes(), "the first message has been in hand since").toBe(1);
    await session.settle(own, [PUBLISHED]);
    const next = (await session.claim("new"))!;
    await session.settle(
      next,
      next.messages.map(() => PUBLISHED),
    );
    expect(crashes()).toBe(0);
  });
});

describe("an owner whose predecessors have died", () => {
  const SLOW_MS = 5000;

  async function heir() {
    const database = new MemoryLanes(1e6);
    database.parts[0]!.crashes = 2;
    for (let n = 1; n <= 40; n++) database.commit(`k${n}`, n, 1);
    return { database, ...(await processOf(database, "heir")) };
  }

  it("tries new messages and failed keys by turns, however long each takes", async () => {
    const { session, database, woken } = await heir();
    await session.settle((await session.claim("new"))!, [retry(0)]);
    for (let round = 1; round <= 3; round++) {
      const fresh = (await session.claim("new"))!;
      expect(await session.claim("retry"), "one claim in hand").toBeUndefined();
      database.now += SLOW_MS;
      const before = woken();
      await session.settle(fresh, [PUBLISHED]);
      expect(woken(), "the other kind is told").toBe(before + 1);
      expect(await session.claim("new")).toBeUndefined();
      const failed = (await session.claim("retry"))!;
      expect(failed.messages.map(({ n }) => n)).toEqual([1]);
      expect(await session.claim("new"), "one claim in hand").toBeUndefined();
      database.now += SLOW_MS;
      await session.settle(failed, [retry(0)]);
      expect(woken()).toBe(before + 2);
      expect(await session.claim("retry")).toBeUndefined();
    }
  });

  it("gives a turn back that is not taken", async () => {
    const { session, database } = await heir();
    await session.settle((await session.claim("new"))!, [retry(0)]);
    const fresh = (await session.claim("new"))!;
    await session.claim("retry");
    await session.settle(fresh, [PUBLISHED]);
    expect(await session.claim("new")).toBeUndefined();
    database.now += 100;
    expect(await session.claim("new")).toBeDefined();
  });

  it("goes on beside an attempt that takes long, and blames nobody meanwhile", async () => {
    const database = new MemoryLanes(1e6);
    const { session } = await processOf(database, "heir");
    for (let n = 1; n <= 40; n++) database.commit(`k${n}`, n, 1);
    const slow = (await session.claim("new"))!;
    const own = session.detach(slow, 0);
    await session.settle(slow, [RUNNING, dead(), ...slow.messages.slice(2).map(() => PUBLISHED)]);
    // What it takes over is of dead owners.
    database.parts[0]!.crashes = 2;
    database.row(2).command = true;
    await session.tend();
    await session.claim("new");
    database.now += 1500;
    for (const n of [11, 12]) {
      const next = (await session.claim("new"))!;
      expect(next.messages.map(({ key }) => key)).toEqual([`k${n}`]);
      expect(next.alone).toBe(false);
      expect(database.parts[0]!.suspect).toBeUndefined();
      await session.settle(next, [PUBLISHED]);
      database.now += 100;
    }
    // Owners have died with this one.
    Object.assign(database.parts[0]!, { suspect: 13, suspectCrashes: 2 });
    const known = (await session.claim("new"))!;
    expect([known.alone, known.crashes]).toEqual([true, 2]);
    await session.settle(known, [PUBLISHED]);
    expect(session.isCurrent(own)).toBe(true);
    await session.settle(own, [PUBLISHED]);
    expect((await session.claim("new"))!.alone).toBe(true);
  });
});

it("pages without messages do not hold a claim for ever", async () => {
  const database = new MemoryLanes(10_000);
  database.parts[0]!.lanes = [1];
  const { session } = await processOf(database, "one");
  // Messages of other relays come faster than they can be read.
  let reads = 0;
  const { log } = database;
  const slice = log.slice.bind(log);
  log.slice = (...range) => {
    if (++reads > 1000) throw new Error("it reads for ever");
    database.commit("other", 40, reads);
    return slice(...range);
  };
  expect(await session.claim("new")).toBeUndefined();
});
