import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { systemClock } from "../../core/clock.ts";
import type { Claim, Outcome, QueueSession, Store } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import type { Message, NewMessage } from "../../core/message.ts";
import { eventuallyTrue } from "../eventually.ts";
import { dead, join, nextClaim, postponed, PUBLISHED, retry, WAITING } from "./consumer.ts";
import type { OpenTransaction } from "./enqueuing.ts";
import { begin, enqueue, enqueueIn, message, payloads, range } from "./enqueuing.ts";
import type { AnyTx, StoreContext } from "./store-context.ts";

export interface HistoryOptions {
  seed: number;
  steps: number;
  /** How many processes share the relay at most. */
  processes: number;
  /** Transactions that stay open while others commit. */
  openTransactions: boolean;
}

interface Process {
  readonly name: string;
  readonly session: QueueSession;
  /** Its lease is short: it may die, or report late. */
  readonly frail: boolean;
  inHand: Claim[];
}

interface Key {
  readonly name: string;
  written: number;
  /** Written by a transaction that has not ended. */
  open: boolean;
}

interface Delivery {
  readonly key: string;
  readonly n: number;
  settled: boolean;
}

const FRAIL_LEASE_MS = 300;

/**
 * Writers, relay processes and operators doing whatever comes, from a seed. Whatever it was: every message of a key is
 * delivered, first deliveries are in order, and each is settled as published once; one that was edited, as it was edited.
 */
export class RandomHistory {
  readonly #context: StoreContext;
  readonly #store: Store<AnyTx>;
  readonly #options: HistoryOptions;
  readonly #keys: Key[] = range(1, 8).map((n) => ({ name: `k${n}`, written: 0, open: false }));
  readonly #open: { key: Key; transaction: OpenTransaction }[] = [];
  readonly #deliveries: Delivery[] = [];
  /** What dead letters were edited to, by id. */
  readonly #edits = new Map<string, string>();
  readonly #late: Promise<void>[] = [];
  readonly #journal: string[] = [];
  readonly #batch: { messages: number; bytes: number };
  #processes: Process[] = [];
  #started = 0;
  #state: number;

  constructor(context: StoreContext, options: HistoryOptions) {
    this.#context = context;
    this.#store = context.withRetention?.({ segmentMs: 1, retentionMs: 0 }) ?? context.store;
    this.#options = options;
    this.#state = options.seed;
    this.#batch = { messages: 1 + this.#below(8), bytes: 1_000_000 };
  }

  async run(): Promise<void> {
    try {
      for (let step = 0; step < this.#options.steps; step++) await this.#step();
      await this.#finish();
      this.#check();
    } catch (error) {
      const history = this.#journal.slice(-60).join("\n");
      throw new Error(`seed ${this.#options.seed}: ${String(error)}\n${history}`, { cause: error });
    }
  }

  async #step(): Promise<void> {
    if (this.#processes.length === 0) await this.#start();
    const one = this.#oneOf(this.#processes);
    const actions: [weight: number, act: () => Promise<unknown>][] = [
      [20, () => this.#write()],
      [4, () => this.#begin()],
      [4, () => this.#commit()],
      [24, () => this.#claim(one)],
      [24, () => this.#settle(one, true)],
      [10, () => one.session.tend()],
      [3, () => this.#start()],
      [2, () => this.#leave(one)],
      [2, () => this.#die(one)],
      [2, async () => this.#abandon(one)],
      [2, () => this.#store.admin.requeue({ all: true })],
      [3, () => this.#edit()],
      [1, () => this.#store.maintenance.run()],
      [2, () => sleep(this.#below(60))],
    ];
    let dice = this.#below(actions.reduce((sum, [weight]) => sum + weight, 0));
    await actions.find(([weight]) => (dice -= weight) < 0)?.[1]();
  }

  async #write(): Promise<void> {
    const key = this.#oneOf(this.#keys);
    if (!key.open) await enqueue(this.#context, ...this.#next(key, 1 + this.#below(4)));
  }

  async #begin(): Promise<void> {
    const key = this.#oneOf(this.#keys);
    if (!this.#options.openTransactions || key.open || this.#open.length >= 3) return;
    key.open = true;
    const transaction = await begin(this.#context);
    await enqueueIn(this.#context, transaction.tx, this.#next(key, 2));
    this.#open.push({ key, transaction });
  }

  async #commit(): Promise<void> {
    const [one] = this.#open.splice(this.#below(this.#open.length), 1);
    if (one === undefined) return;
    await one.transaction.commit();
    one.key.open = false;
  }

  /** Other contents for a dead letter; while it waits to be requeued, that is refused. */
  async #edit(): Promise<void> {
    const letters = await this.#store.admin.dead({});
    if (letters.length === 0) return;
    const letter = this.#oneOf(letters);
    const payload = `${numberOf(letter)} as edited ${this.#below(1000)}`;
    try {
      await this.#store.admin.edit({ relay: letter.relay, id: letter.id }, { payload });
      this.#edits.set(letter.id, payload);
      this.#journal.push(`${letter.key}:${payload}`);
    } catch (error) {
      assert.equal(errorCode(error), "conflict", String(error));
    }
  }

  async #start(): Promise<void> {
    if (this.#processes.length >= this.#options.processes) return;
    const frail = this.#below(10) < 4;
    const name = `${this.#options.seed}-${++this.#started}${frail ? " frail" : ""}`;
    const leaseMs = frail ? FRAIL_LEASE_MS : 60_000;
    const maxParked = this.#below(5) === 0 ? 6 : 10_000;
    const session = await join(this.#context.another(), { owner: name, leaseMs, maxParked, batch: this.#batch });
    this.#processes.push({ name, session, frail, inHand: [] });
    this.#journal.push(`${name} joins`);
  }

  async #claim(one: Process): Promise<void> {
    const claim = await one.session.claim(this.#below(2) === 0 ? "new" : "retry");
    if (claim === undefined) return;
    one.inHand.push(claim);
    this.#journal.push(`${one.name} claims ${claim.kind} ${describe(claim.messages)}`);
  }

  /** The first new claim in hand, or any of failed keys. */
  #anyInHand(one: Process): Claim | undefined {
    const first = one.inHand.find(({ kind }) => kind === "new");
    const ready = one.inHand.filter((claim) => claim === first || claim.kind === "retry");
    if (ready.length === 0) return undefined;
    const claim = this.#oneOf(ready);
    one.inHand = one.inHand.filter((each) => each !== claim);
    return claim;
  }

  /** Publishes a claim in hand as the relay does, and reports it; perhaps late, perhaps without waiting. */
  async #settle(one: Process, troubled: boolean): Promise<void> {
    const claim = this.#anyInHand(one);
    if (claim === undefined) return;
    if (systemClock.monotonic() >= one.session.validUntil) return this.#abandon(one, claim);
    const delivered: Delivery[] = [];
    const outcomes = this.#outcomes(one, claim, troubled, delivered);
    this.#journal.push(
      `${one.name} settles ${describe(claim.messages)}: ${outcomes.map(({ status }) => status).join()}`,
    );
    this.#deliveries.push(...delivered);
    if (troubled && one.frail && this.#below(4) === 0) await this.#meanwhile(one);
    for (const [i, { status }] of outcomes.entries()) {
      if (status === "running") one.inHand.push(one.session.detach(claim, i));
    }
    const settled = one.session.settle(claim, outcomes).then(
      () => {
        for (const delivery of delivered) delivery.settled = true;
      },
      (error: unknown) => {
        this.#journal.push(`${one.name} failed: ${String(error)}`);
        this.#abandon(one, claim);
      },
    );
    if (this.#below(3) === 0) this.#late.push(settled);
    else await settled;
  }

  #outcomes(one: Process, claim: Claim, troubled: boolean, delivered: Delivery[]): Outcome[] {
    const admitted = one.session.admit(claim);
    const held = new Set<string>();
    return claim.messages.map((each, i) => {
      const key = String(each.key);
      if ((admitted !== "all" && admitted[i] !== true) || held.has(key)) return WAITING;
      const dice = troubled ? this.#below(100) : 0;
      if (dice < 80) {
        assert.deepEqual(payloads([each])[0], this.#edits.get(each.id) ?? numberOf(each), "contents as edited");
        delivered.push({ key, n: numberOf(each), settled: false });
        return PUBLISHED;
      }
      held.add(key);
      const attempts = (claim.attempts?.[i] ?? 0) + 1;
      if (dice < 84) return { status: "running" };
      if (dice < 88) return postponed(this.#below(15), ["a", "b", undefined][this.#below(3)]);
      return dice < 95 ? retry(attempts, this.#below(15)) : dead(attempts, true);
    });
  }

  /** The others work while this one's report is on its way, past the end of its lease. */
  async #meanwhile(slow: Process): Promise<void> {
    this.#journal.push(`${slow.name} is slow`);
    for (let i = 0; i < 6; i++) {
      await sleep(FRAIL_LEASE_MS / 4);
      for (const other of this.#processes.filter((one) => one !== slow && !one.frail)) {
        await other.session.tend();
        await this.#claim(other);
        await this.#settle(other, false);
      }
    }
  }

  async #leave(one: Process): Promise<void> {
    this.#processes = this.#processes.filter((each) => each !== one);
    this.#journal.push(`${one.name} leaves`);
    await one.session.leave();
  }

  async #die(one: Process): Promise<void> {
    if (!one.frail) return;
    this.#processes = this.#processes.filter((each) => each !== one);
    this.#journal.push(`${one.name} dies`);
  }

  #abandon(one: Process, claim = one.inHand[0]): void {
    if (claim === undefined) return;
    one.session.abandon(claim);
    one.inHand = [];
    this.#journal.push(`${one.name} abandons its claims`);
  }

  /**
   * All transactions commit, the processes with short leases end, and what is left is delivered without further
   * trouble.
   */
  async #finish(): Promise<void> {
    while (this.#open.length > 0) await this.#commit();
    await Promise.all(this.#late);
    await eventuallyTrue(
      async () => {
        if (this.#processes.length === 0) await this.#start();
        await this.#store.admin.requeue({ all: true });
        for (const one of this.#processes) {
          await one.session.tend();
          for (let more = true; more;) {
            while (one.inHand.length > 0) await this.#settle(one, false);
            const claim = await nextClaim(one.session);
            more = claim !== undefined;
            if (claim !== undefined) one.inHand.push(claim);
          }
        }
        const [figures] = await this.#store.admin.relays();
        assert.deepEqual([figures?.pending, figures?.dead], [0, 0], "everything is delivered");
      },
      { timeoutMs: 30_000 },
    );
    await Promise.all(this.#late);
    const [figures] = await this.#store.admin.relays();
    assert.deepEqual([figures?.parked, figures?.blockedKeys], [0, 0]);
    assert.equal(figures?.published, BigInt(this.#deliveries.filter(({ settled }) => settled).length));
    for (const one of this.#processes) await one.session.leave();
  }

  #check(): void {
    for (const { name, written } of this.#keys) {
      const mine = this.#deliveries.filter(({ key }) => key === name);
      const all = range(1, written);
      assert.deepEqual([...new Set(mine.map(({ n }) => n))], all, `first deliveries of ${name}`);
      const settled = mine.filter((delivery) => delivery.settled).map(({ n }) => n);
      assert.deepEqual(
        settled.toSorted((a, b) => a - b),
        all,
        `messages of ${name} settled once`,
      );
    }
  }

  #next(key: Key, count: number): NewMessage[] {
    return range(1, count).map(() => message(++key.written, { key: key.name }));
  }

  #oneOf<T>(values: readonly T[]): T {
    const value = values[this.#below(values.length)];
    assert.ok(value !== undefined);
    return value;
  }

  /** Mulberry32: the same seed makes the same choices. */
  #below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % Math.max(1, limit);
  }
}

function numberOf(one: Message): number {
  return Number.parseInt(String(payloads([one])[0]), 10);
}

function describe(messages: readonly Message[]): string {
  return messages.map((one) => `${one.key}:${numberOf(one)}`).join(" ");
}
