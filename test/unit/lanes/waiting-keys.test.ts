import { describe, expect, it } from "vitest";
import { DueQueue } from "../../../src/lanes/due-queue.ts";
import { WaitingKeys, type WaitingKey } from "../../../src/lanes/waiting-keys.ts";

interface Key extends WaitingKey {
  ready: boolean;
}

const key = (name: string, dueAt: number, more: Partial<Key> = {}): Key => ({
  name,
  dueAt,
  held: false,
  parked: 1,
  draining: false,
  route: undefined,
  ready: true,
  ...more,
});

function keys(...all: Key[]): WaitingKeys<Key> {
  const waiting = new WaitingKeys<Key>(({ ready }) => ready);
  for (const one of all) waiting.put(one);
  return waiting;
}

const names = (taken: readonly Key[]) => taken.map(({ name }) => name);

/** Mulberry32. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

describe("DueQueue", () => {
  it("gives the earliest first, whatever the order of adding", () => {
    const below = random(1);
    const queue = new DueQueue<number>();
    const times = Array.from({ length: 500 }, () => below(100));
    for (const [i, at] of times.entries()) {
      queue.add(at, i);
      // Some are taken between, and added again.
      if (i % 7 === 0) {
        const first = queue.take()!;
        queue.add(first.at, first.item);
      }
    }
    const taken: number[] = [];
    for (let first = queue.take(); first !== undefined; first = queue.take()) taken.push(first.at);
    expect(taken).toEqual(times.toSorted((a, b) => a - b));
  });
});

describe("WaitingKeys", () => {
  it("gives keys whose time has come, those due for longest first", () => {
    const waiting = keys(key("c", 30), key("a", 10), key("b", 20));
    expect(waiting.nextDueAt()).toBe(10);
    expect(names(waiting.due(20, 10))).toEqual(["a", "b"]);
    expect(waiting.nextDueAt()).toBe(30);
    expect(names(waiting.due(99, 10))).toEqual(["c"]);
    expect(waiting.nextDueAt()).toBeUndefined();
  });

  it("gives a key again only when it is scheduled again, and by its new time", () => {
    const a = key("a", 10);
    const waiting = keys(a);
    expect(names(waiting.due(10, 1))).toEqual(["a"]);
    expect(waiting.due(99, 1)).toEqual([]);
    a.draining = true;
    waiting.schedule(a);
    expect(waiting.due(99, 1)).toEqual([]);
    a.draining = false;
    a.dueAt = 50;
    waiting.schedule(a);
    waiting.schedule(a);
    expect(waiting.due(49, 9)).toEqual([]);
    expect(names(waiting.due(50, 9))).toEqual(["a"]);
  });

  it("passes over what is held, in hand, not ready or gone, and forgets times that have changed", () => {
    const [held, taken, unready, gone, later] = ["h", "t", "u", "g", "l"].map((name) => key(name, 1)) as [
      Key,
      Key,
      Key,
      Key,
      Key,
    ];
    const waiting = keys(held, taken, unready, gone, later);
    held.held = true;
    taken.draining = true;
    unready.ready = false;
    waiting.delete(gone);
    later.dueAt = 5;
    waiting.schedule(later);
    expect(waiting.due(4, 9)).toEqual([]);
    expect(waiting.nextDueAt()).toBe(5);
    expect([waiting.size, waiting.parked]).toEqual([4, 4]);
  });

  it("leaves keys that are not accepted for the next time", () => {
    const waiting = keys(key("a", 1), key("b", 2), key("c", 3));
    expect(names(waiting.due(9, 9, ({ name }) => name === "b"))).toEqual(["b"]);
    expect(names(waiting.due(9, 9))).toEqual(["a", "c"]);
  });

  it("lets a few keys find out whether a route is back, and then all of them", () => {
    const all = Array.from({ length: 20 }, (_, i) => key(`k${i}`, 0));
    const waiting = keys(...all);
    for (const one of waiting.due(0, 99)) {
      waiting.routeOut(one, "queue", 100);
      one.dueAt = 100;
      waiting.schedule(one);
    }
    expect(waiting.nextDueAt()).toBe(100);
    expect(waiting.due(99, 99)).toEqual([]);
    const probes = waiting.due(100, 99);
    expect(probes.length).toBeLessThan(5);
    for (const probe of probes) probe.draining = true;
    // While they are out, no others go.
    expect([waiting.due(1000, 99), waiting.nextDueAt()]).toEqual([[], undefined]);
    for (const probe of probes) {
      waiting.routeOut(probe, "queue", 2000);
      probe.draining = false;
      waiting.schedule(probe);
    }
    expect(waiting.nextDueAt()).toBe(2000);
    const [found, ...others] = waiting.due(2000, 99);
    for (const probe of [found!, ...others]) probe.draining = true;
    waiting.routeBack(found!, 2000);
    for (const probe of [found!, ...others]) {
      probe.draining = false;
      waiting.schedule(probe);
    }
    expect(waiting.due(2000, 99).length).toBe(20);
  });

  it("leaves a key to its own time when it has more to wait for than its route", () => {
    const [failed, other] = [key("failed", 0), key("other", 0)];
    const waiting = keys(failed, other);
    for (const one of waiting.due(0, 9)) {
      one.dueAt = 100;
      waiting.routeOut(one, "queue", 100);
      waiting.schedule(one);
    }
    const probes = waiting.due(100, 9);
    expect(names(probes)).toEqual(["failed", "other"]);
    // The route has answered: the message itself failed, and has a time of its own.
    failed.dueAt = 500;
    other.dueAt = 200;
    waiting.routeOut(other, "queue", 200);
    for (const probe of probes) waiting.schedule(probe);
    expect(names(waiting.due(200, 9))).toEqual(["other"]);
    expect(waiting.nextDueAt()).toBe(500);
    expect(names(waiting.due(500, 9))).toEqual(["failed"]);
  });

  it("loses no key, whatever comes", () => {
    for (let seed = 1; seed <= 200; seed++) {
      const below = random(seed);
      const all = Array.from({ length: 12 }, (_, i) => key(`k${i}`, below(50)));
      const waiting = keys(...all);
      let now = 0;
      let inHand: Key[] = [];
      for (let step = 0; step < 200; step++) {
        now += below(10);
        for (const one of waiting.due(now, 1 + below(5), () => below(3) > 0)) {
          if (below(4) === 0) waiting.schedule(one);
          else {
            one.draining = true;
            inHand.push(one);
          }
        }
        if (below(2) === 0) {
          const [first, ...rest] = inHand;
          if (first === undefined) continue;
          inHand = rest;
          first.dueAt = now + below(20);
          const dice = below(4);
          if (dice < 2) waiting.routeOut(first, ["a", "b"][dice]!, first.dueAt);
          else if (dice === 2) waiting.routeBack(first, now);
          first.draining = false;
          waiting.schedule(first);
        }
      }
      // Everything comes out in the end.
      for (const one of inHand) {
        one.draining = false;
        waiting.schedule(one);
      }
      const seen = new Set<Key>();
      for (let round = 0; round < 50 && seen.size < all.length; round++) {
        now += 1000;
        for (const one of waiting.due(now, 3)) {
          seen.add(one);
          waiting.delete(one);
        }
      }
      expect(seen.size, `seed ${seed}`).toBe(all.length);
      expect(waiting.parked).toBe(0);
    }
  });
});
