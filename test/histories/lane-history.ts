import assert from "node:assert/strict";
import type { Claim, Clock, Outcome } from "../../src/core/contracts.ts";
import { LaneSession } from "../../src/lanes/lane-session.ts";
import { MemoryLanePort, type MemoryMessage, type MemoryPart, type PageMark, type Send } from "./memory-lane-port.ts";
import { MemoryLanes } from "./memory-lanes.ts";
import { Random } from "./random.ts";

type Session = LaneSession<MemoryPart, MemoryMessage, PageMark>;
type HeldClaim = Exclude<Awaited<ReturnType<Session["claim"]>>, undefined>;

const LEASE_MS = 1000;
const KEYS = 6;
const MAX_PROCESSES = 4;

/** Something on its way to the database or back. */
interface Traffic {
  readonly process: Process;
  deliver(): void;
}

interface InHand {
  readonly claim: HeldClaim;
  /** Undefined: not published yet. */
  outcomes: Outcome[] | undefined;
}

interface Process {
  readonly name: string;
  readonly session: Session;
  readonly inHand: InHand[];
  readonly claiming: Set<string>;
  /** Its clock is that of the database, shifted. */
  readonly shift: number;
  /** Nothing of it happens for a while, and nothing reaches it. */
  pausedUntil: number;
  joined: boolean;
  ending: boolean;
  dead: boolean;
}

export interface HistoryResult {
  steps: number;
  committed: number;
  deliveries: number;
}

/**
 * Processes, a database and an operator doing whatever comes, from a seed: questions and answers are lost or late,
 * processes pause, die and come back. Whatever it was, no message of a key is published before an earlier one, none is
 * published again after its settlement was acknowledged, no two processes hold the same message, and none is left.
 */
export class LaneHistory {
  readonly #random: Random;
  readonly #database = new MemoryLanes(LEASE_MS);
  readonly #traffic: Traffic[] = [];
  readonly #sleepers: { at: number; resolve: () => void; process: Process }[] = [];
  #processes: Process[] = [];
  #started = 0;
  readonly #written = new Map<string, number>();
  /** Positions that were published with success, acknowledged as such, and given up as dead. */
  readonly #published = new Set<number>();
  readonly #settled = new Set<number>();
  readonly #dead = new Set<number>();
  readonly #journal: string[] = [];
  #deliveries = 0;
  /** The line loses nothing any more. */
  #calm = false;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  async run(steps: number): Promise<HistoryResult> {
    try {
      for (let step = 0; step < steps; step++) {
        this.#step();
        await turn();
      }
      await this.#finish();
    } catch (error) {
      throw new Error(`${String(error)}\n${this.#journal.slice(-80).join("\n")}`, { cause: error });
    }
    return { steps, committed: this.#database.log.length, deliveries: this.#deliveries };
  }

  #step(): void {
    const random = this.#random;
    const awake = this.#processes.filter((one) => !one.dead && one.pausedUntil <= this.#database.now);
    const one = awake.length === 0 ? undefined : random.oneOf(awake);
    for (let i = random.below(4); i > 0; i--) this.#deliverTraffic();
    const dice = random.below(1000);
    if (dice < 360) return this.#deliverTraffic();
    if (dice < 430) return this.#commit();
    if (dice < 500) return this.#advance(1 + random.below(60));
    if (dice < 503) return this.#advance(LEASE_MS + random.below(LEASE_MS));
    if (dice < 510 || one === undefined) return this.#start();
    if (dice < 514) return void (one.pausedUntil = this.#database.now + random.below(3 * LEASE_MS));
    if (dice < 517) return this.#die(one);
    if (dice < 520) return this.#leave(one);
    if (dice < 523) return this.#abandon(one);
    if (dice < 527) return this.#requeue();
    if (dice < 590) return this.#tend(one);
    if (dice < 720) return this.#claim(one, random.chance(60) ? "new" : "retry");
    if (dice < 860) return this.#publish(one);
    this.#settle(one);
  }

  #commit(): void {
    const key = this.#random.chance(10) ? null : `k${this.#random.below(KEYS)}`;
    const name = key ?? "none";
    for (let i = 1 + this.#random.below(3); i > 0; i--) {
      const n = (this.#written.get(name) ?? 0) + 1;
      this.#written.set(name, n);
      this.#database.commit(key, key === null ? this.#random.below(64) : Number(key.slice(1)) * 9, n);
    }
  }

  #advance(ms: number): void {
    this.#database.now += ms;
    for (const sleeper of this.#sleepers.splice(0)) {
      if (sleeper.at > this.#database.now) this.#sleepers.push(sleeper);
      else if (!sleeper.process.dead) sleeper.resolve();
    }
  }

  #start(): void {
    if (this.#processes.filter(({ dead }) => !dead).length >= MAX_PROCESSES) return;
    const name = `p${++this.#started}`;
    const shift = this.#random.below(1_000_000);
    const clock: Clock = {
      monotonic: () => this.#database.now + shift,
      sleep: (ms) => new Promise((resolve) => this.#sleepers.push({ at: this.#database.now + ms, resolve, process })),
    };
    const send: Send = (step) => this.#send(process, step);
    const port = new MemoryLanePort(this.#database, name, send);
    const batch = { messages: 1 + this.#random.below(6), bytes: 1_000_000 };
    const options = { relay: "r", owner: name, leaseMs: LEASE_MS, start: "earliest" as const, streams: undefined };
    const session = new LaneSession(port, { ...options, unordered: [], batch, maxParked: 40 }, clock);
    const process: Process = {
      name,
      session,
      inHand: [],
      claiming: new Set(),
      shift,
      pausedUntil: 0,
      joined: false,
      ending: false,
      dead: false,
    };
    this.#processes.push(process);
    this.#tell(`${name} starts`);
    session.join().then(
      () => (process.joined = true),
      (error: unknown) => this.#die(process, String(error)),
    );
  }

  /** A question to the database: carried out and answered some time later, or lost on one of the two ways. */
  #send<T>(process: Process, step: () => T): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const lost = !this.#calm && this.#random.chance(4);
    // A question may arrive long after its sender gave it up.
    const late = lost && this.#random.chance(50);
    this.#traffic.push({
      process,
      deliver: () => {
        if (late) this.#traffic.push({ process, deliver: () => void step() });
        if (lost && !late && this.#random.chance(50)) step();
        if (lost) return this.#traffic.push({ process, deliver: () => reject(new Error("The line broke")) });
        const answer = step();
        return this.#traffic.push({ process, deliver: () => resolve(answer) });
      },
    });
    return promise;
  }

  #deliverTraffic(): void {
    const ready = this.#traffic.filter(({ process }) => process.dead || process.pausedUntil <= this.#database.now);
    if (ready.length === 0) return;
    const one = ready[Math.min(this.#random.below(ready.length), this.#random.below(ready.length))]!;
    this.#traffic.splice(this.#traffic.indexOf(one), 1);
    one.deliver();
  }

  #tend({ joined, session }: Process): void {
    if (joined) session.tend().catch(() => undefined);
  }

  #claim(process: Process, kind: "new" | "retry"): void {
    const { session, inHand, claiming, name } = process;
    if (!process.joined || process.ending || claiming.has(kind) || inHand.length > 6) return;
    claiming.add(kind);
    session.claim(kind).then(
      (claim) => {
        claiming.delete(kind);
        if (claim === undefined || process.dead) return;
        this.#tell(`${name} claims ${kind} ${shown(claim)}${claim.alone ? " alone" : ""}`);
        inHand.push({ claim, outcomes: undefined });
      },
      () => claiming.delete(kind),
    );
  }

  /** What a relay does: asks whether the claim and the lease hold, and then sends. */
  #publish(process: Process): void {
    const { session, inHand, name } = process;
    // A new claim is published when what became of the one before it is reported.
    const first = inHand.find(({ claim }) => claim.kind === "new");
    const next = inHand.find((held) => held.outcomes === undefined && (held === first || held.claim.kind === "retry"));
    if (next === undefined) return;
    const { claim } = next;
    const now = this.#database.now + process.shift;
    if (!session.isCurrent(claim) || now >= session.validUntil) {
      session.abandon(claim);
      return void inHand.splice(inHand.indexOf(next), 1);
    }
    this.#tell(`${name} begins with ${claim.kind} ${shown(claim)}`);
    this.#checkAlone(process, claim);
    const admitted = session.admit(claim);
    const failed = new Set<string>();
    next.outcomes = claim.messages.map((message, i) => {
      const key = message.key;
      if ((admitted !== "all" && !admitted[i]) || (key !== null && failed.has(key))) return { status: "waiting" };
      const outcome = this.#attempt(message, claim, i);
      if (outcome.status !== "published" && key !== null) failed.add(key);
      return outcome;
    });
    this.#tell(`${name} publishes ${shown(claim)}: ${next.outcomes.map(({ status }) => status.slice(0, 3)).join(" ")}`);
    const running = next.outcomes.flatMap(({ status }, i) => (status === "running" ? [i] : []));
    if (running.length === 0) return;
    for (const i of running) inHand.push({ claim: session.detach(claim, i), outcomes: [this.#outcomeOf(1)] });
    // What goes on in a claim of its own went out when it began.
    this.#notePublished(inHand);
    this.#report(process, next);
  }

  #attempt(message: MemoryMessage, claim: HeldClaim, i: number): Outcome {
    this.#deliveries++;
    this.#checkOrder(message);
    if (!claim.alone && !this.#calm && this.#random.chance(4)) return { status: "running" };
    const outcome = this.#outcomeOf((claim.attempts?.[i] ?? 0) + 1);
    if (outcome.status === "published") this.#published.add(message.ref);
    return outcome;
  }

  #notePublished(inHand: readonly InHand[]): void {
    for (const { claim, outcomes } of inHand) {
      if (claim.kind === "retry" && outcomes?.length === 1 && outcomes[0]!.status === "published")
        this.#published.add(claim.messages[0]!.ref);
    }
  }

  #outcomeOf(attempts: number): Outcome {
    const delayMs = this.#random.below(400);
    const dice = this.#calm ? 0 : this.#random.below(100);
    if (dice < 75) return { status: "published" };
    if (dice < 87) return { status: "retry", error: "failed", delayMs, attempts };
    if (dice < 94)
      return { status: "postponed", error: "out", delayMs, route: this.#random.chance(50) ? "r" : undefined };
    return { status: "dead", error: "dead", attempts, block: this.#random.chance(50) };
  }

  #checkOrder({ key, n, ref }: MemoryMessage): void {
    assert.ok(!this.#settled.has(ref), `message ${n} of ${key} is published again, though that was acknowledged`);
    if (key === null) return;
    for (const row of this.#database.log) {
      if (row.key !== key || row.n >= n) continue;
      const through = this.#published.has(row.position) || this.#dead.has(row.position);
      assert.ok(through, `message ${n} of ${key} overtakes ${row.n}`);
    }
  }

  /** No other process may hold these messages, in a claim that still counts. */
  #checkAlone(process: Process, claim: HeldClaim): void {
    for (const other of this.#processes) {
      if (other.dead || this.#database.now + other.shift >= other.session.validUntil) continue;
      for (const held of other.inHand) {
        if (held.claim === claim || !other.session.isCurrent(held.claim) || held.outcomes !== undefined) continue;
        const shared = held.claim.messages.find(({ ref }) => claim.messages.some((message) => message.ref === ref));
        assert.equal(shared, undefined, `${process.name} and ${other.name} hold ${shared?.n} of ${shared?.key}`);
      }
    }
  }

  #settle(process: Process): void {
    const { inHand } = process;
    const done = inHand.filter(({ outcomes }) => outcomes !== undefined);
    const next = done.find(({ claim }) => claim.kind === "new");
    const retries = done.filter(({ claim }) => claim.kind === "retry");
    const one = next !== undefined && (retries.length === 0 || this.#random.chance(50)) ? next : retries[0];
    if (one === undefined) return;
    // New claims are settled in the order in which they were claimed.
    if (one === next && inHand.find(({ claim }) => claim.kind === "new") !== next) return;
    this.#report(process, one);
  }

  #report(process: Process, held: InHand): void {
    const { session, inHand } = process;
    inHand.splice(inHand.indexOf(held), 1);
    const { claim } = held;
    let outcomes = held.outcomes!;
    if (!this.#calm && claim.kind === "new" && this.#random.chance(1)) {
      outcomes = outcomes.slice(0, this.#random.below(outcomes.length));
      // Only leaving may follow.
      process.ending = true;
      inHand.length = 0;
    }
    for (const [i, { status }] of outcomes.entries()) {
      if (status === "dead" && session.isCurrent(claim)) this.#dead.add(claim.messages[i]!.ref);
    }
    session.settle(claim, outcomes).then(
      () => {
        this.#tell(`${process.name} has settled ${shown(claim)}`);
        for (const [i, { status }] of outcomes.entries()) {
          if (status === "published") this.#settled.add(claim.messages[i]!.ref);
        }
      },
      () => undefined,
    );
  }

  #abandon(process: Process): void {
    const one = process.inHand.at(0);
    if (one === undefined) return;
    this.#tell(`${process.name} abandons ${shown(one.claim)}`);
    process.inHand.splice(0, 1);
    process.session.abandon(one.claim);
  }

  #requeue(): void {
    const dead = this.#database.log.filter(({ state, position }) => state === "dead" && this.#dead.has(position));
    if (dead.length === 0) return;
    const row = this.#random.oneOf(dead);
    row.command = true;
  }

  #die(process: Process, why = "is killed"): void {
    this.#tell(`${process.name} dies: ${why}`);
    process.dead = true;
    process.inHand.length = 0;
  }

  #leave(process: Process): void {
    if (!process.joined) return;
    this.#tell(`${process.name} leaves`);
    process.ending = true;
    process.session.leave().then(
      () => this.#die(process, "has left"),
      () => this.#die(process, "could not leave"),
    );
  }

  /** With a line that loses nothing and a target that takes everything, all that was committed goes out. */
  async #finish(): Promise<void> {
    this.#calm = true;
    for (let step = 0; step < 200_000; step++) {
      if (step % 100 === 0) for (const row of this.#database.log) row.command ||= row.state === "dead";
      const living = this.#processes.filter(({ dead }) => !dead);
      if (living.length === 0 || (living.every(({ ending }) => ending) && step % 500 === 0)) this.#start();
      for (const one of living) one.pausedUntil = 0;
      const one = living.length === 0 ? undefined : this.#random.oneOf(living);
      const dice = this.#random.below(100);
      if (dice < 45) this.#deliverTraffic();
      else if (dice < 55) this.#advance(this.#random.below(60));
      else if (one !== undefined && dice < 62) this.#tend(one);
      else if (one !== undefined && dice < 75) this.#claim(one, this.#random.chance(50) ? "new" : "retry");
      else if (one !== undefined && dice < 87) this.#publish(one);
      else if (one !== undefined) this.#settle(one);
      if (one?.ending === true && step % 50 === 0) this.#leave(one);
      await turn();
      if (step % 100 === 0 && this.#isDone()) return;
    }
    const left = this.#database.log.filter(({ state }) => state !== "published");
    assert.deepEqual(left, [], "these messages are left");
    assert.equal(this.#database.keys.size, 0, "keys are still blocked");
  }

  #isDone(): boolean {
    return this.#database.log.every(({ state }) => state === "published") && this.#database.keys.size === 0;
  }

  #tell(what: string): void {
    this.#journal.push(`${this.#database.now}: ${what}`);
    if (this.#journal.length > 1000) this.#journal.splice(0, 500);
  }
}

function shown(claim: Claim): string {
  return claim.messages.map((message) => `${message.key}/${(message as MemoryMessage).n}`).join(" ");
}

/** Lets every promise that is settled by now have its effect. */
async function turn(): Promise<void> {
  for (let i = 0; i < 12; i++) await Promise.resolve();
}
