import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Claim, ClaimKind, JoinOptions, Outcome, QueueSession, Store } from "../../core/contracts.ts";
import type { Message } from "../../core/message.ts";
import type { AnyTx } from "./store-context.ts";

export const PUBLISHED: Outcome = { status: "published" };
export const WAITING: Outcome = { status: "waiting" };

export function retry(attempts = 1, delayMs = 0, error = `attempt ${attempts} failed`): Outcome {
  return { status: "retry", error, attempts, delayMs };
}

export function dead(attempts = 1, block = false, error = "it can never work"): Outcome {
  return { status: "dead", error, attempts, block };
}

/** Its target is out, or a route of it. */
export function postponed(delayMs = 0, route?: string, error = "the target is out"): Outcome {
  return { status: "postponed", error, delayMs, route };
}

/** Long enough that no case loses a lease by being slow. */
export const LONG_LEASE_MS = 60_000;

let owners = 0;

const EITHER: readonly ClaimKind[] = ["retry", "new"];

/** The next messages, by default of either kind, those of failed keys first. */
export async function nextClaim(
  session: QueueSession,
  kinds: readonly ClaimKind[] = EITHER,
): Promise<Claim | undefined> {
  for (const kind of kinds) {
    const claim = await session.claim(kind);
    if (claim !== undefined) return claim;
  }
  return undefined;
}

export function join(store: Store<AnyTx>, options: Partial<JoinOptions> = {}): Promise<QueueSession> {
  return store.queue.join({
    relay: "r",
    owner: `owner-${++owners}`,
    leaseMs: LONG_LEASE_MS,
    start: "earliest",
    streams: undefined,
    unordered: [],
    batch: { messages: 100, bytes: 1_000_000 },
    maxParked: 10_000,
    ...options,
  });
}

/** What becomes of a message; by default it is published. */
export type Judge = (message: Message, attempts: number) => Outcome;

export interface ConsumerOptions {
  judge?: Judge;
  unordered?: readonly string[];
}

/** Works a session as the relay does, one claim after the other, and remembers what was published. */
export class Consumer {
  readonly session: QueueSession;
  readonly published: Message[] = [];
  judge: Judge;
  readonly #unordered: readonly string[];

  constructor(session: QueueSession, { judge = () => PUBLISHED, unordered = [] }: ConsumerOptions = {}) {
    this.session = session;
    this.judge = judge;
    this.#unordered = unordered;
  }

  /** What the relay would report for a claim: what is not admitted, or comes after a failure of its key, waits. */
  outcomesOf(claim: Claim): Outcome[] {
    const admitted = this.session.admit(claim);
    const held = new Set<string>();
    return claim.messages.map((message, i) => {
      const key = message.key === null || this.#unordered.includes(message.stream) ? undefined : keyOf(message);
      if ((admitted !== "all" && admitted[i] !== true) || (key !== undefined && held.has(key))) return WAITING;
      const outcome = this.judge(message, claim.attempts?.[i] ?? 0);
      if (outcome.status !== "published" && key !== undefined) held.add(key);
      return outcome;
    });
  }

  /** One claim, settled; false when there was none. */
  async step(): Promise<boolean> {
    const claim = await nextClaim(this.session);
    if (claim === undefined) return false;
    const outcomes = this.outcomesOf(claim);
    await this.session.settle(claim, outcomes);
    this.published.push(...claim.messages.filter((_, i) => outcomes[i]?.status === "published"));
    return true;
  }

  /** Claims until there is nothing to do right now. */
  async drain(): Promise<Message[]> {
    const before = this.published.length;
    while (await this.step());
    return this.published.slice(before);
  }

  /** Tends and drains until this many more messages were published. Errors of the store are not waited out. */
  async take(count: number, timeoutMs = 30_000): Promise<Message[]> {
    const before = this.published.length;
    const endsAt = performance.now() + timeoutMs;
    for (;;) {
      await this.session.tend();
      await this.drain();
      const got = this.published.slice(before);
      if (got.length >= count) return got;
      assert.ok(performance.now() < endsAt, `${got.length} of ${count} messages were published in ${timeoutMs} ms`);
      await sleep(10);
    }
  }
}

function keyOf({ stream, key }: Message): string {
  return JSON.stringify([stream, key]);
}

export async function joined(
  store: Store<AnyTx>,
  options: Partial<JoinOptions> = {},
  consuming: ConsumerOptions = {},
): Promise<Consumer> {
  return new Consumer(await join(store, options), { unordered: options.unordered ?? [], ...consuming });
}

/** The next claim with anything in it; tends until there is one, as a process does that waits for its share. */
export async function claimSome(session: QueueSession, kinds: readonly ClaimKind[] = EITHER): Promise<Claim> {
  const endsAt = performance.now() + 30_000;
  for (;;) {
    await session.tend();
    const claim = await nextClaim(session, kinds);
    if (claim !== undefined && claim.messages.length > 0) return claim;
    assert.ok(performance.now() < endsAt, "there is something to claim");
    if (claim !== undefined) await session.settle(claim, []);
    else await sleep(10);
  }
}
