import { BatchResults, groupByKey, HELD, NOT_TRIED, orderOf, type Keyed } from "./batch-results.ts";
import type { ClaimKind, PublishProgress, PublishResult } from "./contracts.ts";
import { mayBegin } from "./may-begin.ts";
import { PublishSlots, type Place } from "./publish-slots.ts";

export interface ByKeyOptions {
  /** How many at once, each of another key. */
  concurrency: number;
  /** Nothing is begun after it aborts. */
  signal: AbortSignal;
  /** As given to `publish`: it is asked before each message, and told of each result as it comes. */
  progress?: PublishProgress | undefined;
  /** Shared by all batches of a publisher. Default: `concurrency` for this batch alone. */
  slots?: PublishSlots | undefined;
}

/**
 * Runs `each` for every message and keeps the order of keys: those of one (stream, key) go one after another and end
 * at the first that did not succeed; different keys and messages without a key go side by side. Once one finds the whole
 * target out, nothing more is begun. What was not tried comes back as held or unavailable.
 */
export function publishByKey<M extends Keyed>(
  messages: readonly M[],
  each: (message: M) => Promise<PublishResult>,
  options: ByKeyOptions,
): Promise<PublishResult[]> {
  return new KeyedBatch(messages, each, options).run();
}

/** The messages of one key that are left, or one message without a key. */
interface Chain {
  /** Undefined for a message without a key. */
  readonly key: string | undefined;
  readonly indices: readonly number[];
}

class KeyedBatch<M extends Keyed> {
  readonly #messages: readonly M[];
  readonly #each: (message: M) => Promise<PublishResult>;
  readonly #signal: AbortSignal;
  readonly #progress: PublishProgress | undefined;
  readonly #kind: ClaimKind;
  readonly #slots: PublishSlots;
  readonly #results: BatchResults;
  readonly #done = Promise.withResolvers<void>();
  /** Keys that went through lately, and all others. */
  readonly #good: Waiting<Chain>;
  readonly #other: Waiting<Chain>;
  /** Chains that the relay no longer waits for. */
  readonly #passedOn = new Waiting<Chain>([]);
  #running = 0;
  /** The target is out, or the lease is over: nothing more is begun. */
  #out = false;

  constructor(messages: readonly M[], each: (message: M) => Promise<PublishResult>, options: ByKeyOptions) {
    this.#messages = messages;
    this.#each = each;
    this.#signal = options.signal;
    this.#progress = options.progress;
    this.#kind = options.progress?.kind ?? "new";
    this.#slots = options.slots ?? new PublishSlots(options.concurrency);
    this.#results = new BatchResults(messages);
    const chains = groupByKey(messages).map((indices) => ({ key: orderOf(messages[indices[0]!]!), indices }));
    const isGood = ({ key }: Chain) => key !== undefined && this.#slots.isGood(key);
    this.#good = new Waiting(chains.filter(isGood));
    this.#other = new Waiting(this.#good.size === 0 ? chains : chains.filter((chain) => !isGood(chain)));
  }

  async run(): Promise<PublishResult[]> {
    const begin = () => this.#begin();
    const forget = this.#slots.onChange(begin);
    this.#signal.addEventListener("abort", begin);
    try {
      this.#begin();
      await this.#done.promise;
    } finally {
      forget();
      this.#signal.removeEventListener("abort", begin);
    }
    return this.#results.all();
  }

  /** Asked before each message: it may be long since the last. */
  get #ended(): boolean {
    return (this.#out ||= !mayBegin(this.#signal, this.#progress));
  }

  /** The relay need not wait for messages that take long. */
  get #mayPassOn(): boolean {
    return this.#progress?.onResult !== undefined;
  }

  #begin(): void {
    if (!this.#ended) {
      this.#beginSome(this.#good, this.#kind, true);
      this.#beginSome(this.#other, this.#kind, false);
      if (this.#slots.clogged && this.#mayPassOn) this.#passOn();
      this.#beginSome(this.#passedOn, "retry", false);
    }
    // Asked again: what was begun may have found the target out at once.
    if (this.#ended) this.#giveUp();
    if (this.#running + this.#good.size + this.#other.size + this.#passedOn.size === 0) this.#done.resolve();
  }

  #beginSome(chains: Waiting<Chain>, kind: ClaimKind, good: boolean): void {
    while (chains.size > 0 && !this.#ended) {
      const place = this.#slots.take(kind, good);
      if (place === undefined) return;
      this.#running++;
      this.#send(chains.next(), place, chains === this.#passedOn).catch((error: unknown) => this.#done.reject(error));
    }
  }

  /** The relay no longer waits for these: they begin when slow ones before them are through. */
  #passOn(): void {
    while (this.#other.size > 0) {
      const chain = this.#other.next();
      this.#progress?.onResult?.(chain.indices[0]!, { status: "running" });
      this.#hold(chain, 1);
      this.#passedOn.add(chain);
    }
  }

  #giveUp(): void {
    for (const chains of [this.#good, this.#other]) {
      while (chains.size > 0) for (const index of chains.next().indices) this.#tell(index, NOT_TRIED);
    }
    // Those wait with their keys already.
    while (this.#passedOn.size > 0) this.#tell(this.#passedOn.next().indices[0]!, HELD);
  }

  async #send(chain: Chain, place: Place, alreadyPassedOn: boolean): Promise<void> {
    let passedOn = alreadyPassedOn;
    let taken = place;
    try {
      for (let n = 0; n < chain.indices.length && !this.#ended; n++) {
        const index = chain.indices[n]!;
        const onLong = () => {
          passedOn = true;
          this.#progress?.onResult?.(index, { status: "running" });
          this.#hold(chain, n + 1);
        };
        const use = this.#slots.begin(taken, !this.#mayPassOn || passedOn ? undefined : onLong);
        let result: PublishResult | undefined;
        try {
          result = await this.#each(this.#messages[index]!);
        } catch (error) {
          // The results of the others are lost with this error: what began now would be sent again.
          this.#out = true;
          throw error;
        } finally {
          taken = use.place;
          this.#slots.end(use, chain.key, result?.status === "published");
        }
        this.#tell(index, result);
        if (result.status === "unavailable" && result.route === undefined) this.#out = true;
        if (result.status !== "published") this.#hold(chain, n + 1);
        if (passedOn || result.status !== "published") return;
      }
    } finally {
      this.#running--;
      this.#slots.free(taken);
      this.#begin();
    }
  }

  #tell(index: number, result: PublishResult): void {
    this.#results.set(index, result);
    this.#progress?.onResult?.(index, result);
  }

  #hold({ indices }: Chain, from: number): void {
    for (const index of indices.slice(from)) if (this.#results.get(index) !== HELD) this.#tell(index, HELD);
  }
}

/** What waits for its turn; taking one costs nothing, however many there are. */
class Waiting<T> {
  readonly #items: T[];
  #taken = 0;

  constructor(items: T[]) {
    this.#items = items;
  }

  get size(): number {
    return this.#items.length - this.#taken;
  }

  add(item: T): void {
    this.#items.push(item);
  }

  next(): T {
    return this.#items[this.#taken++]!;
  }
}
