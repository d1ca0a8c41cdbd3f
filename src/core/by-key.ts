import type { ClaimKind, PublishProgress, PublishResult } from "./contracts.ts";
import { PublishSlots } from "./publish-slots.ts";

export interface ByKeyOptions {
  /** How many at once, each of another key. */
  concurrency: number;
  /** Nothing is begun after it aborts. */
  signal: AbortSignal;
  /** As given to `publish`: results are told one by one, and nobody waits for messages that take long. */
  progress?: PublishProgress | undefined;
  /** Shared by all batches of a publisher. Default: `concurrency` for this batch alone. */
  slots?: PublishSlots | undefined;
}

export interface Keyed {
  readonly stream?: string | undefined;
  readonly key?: string | null | undefined;
}

const NOT_TRIED: PublishResult = { status: "unavailable" };
const HELD: PublishResult = { status: "held" };

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

type Chain<M> = [index: number, message: M][];

class KeyedBatch<M extends Keyed> {
  readonly #each: (message: M) => Promise<PublishResult>;
  readonly #signal: AbortSignal;
  readonly #progress: PublishProgress | undefined;
  readonly #kind: ClaimKind;
  readonly #slots: PublishSlots;
  readonly #results: PublishResult[];
  readonly #chains: Iterator<Chain<M>>;
  readonly #done = Promise.withResolvers<void>();
  #next: IteratorResult<Chain<M>>;
  #running = 0;
  /** The target is out. */
  #out = false;

  constructor(messages: readonly M[], each: (message: M) => Promise<PublishResult>, options: ByKeyOptions) {
    this.#each = each;
    this.#signal = options.signal;
    this.#progress = options.progress;
    this.#kind = options.progress?.kind ?? "new";
    this.#slots = options.slots ?? new PublishSlots(options.concurrency);
    this.#results = messages.map(() => NOT_TRIED);
    this.#chains = chainsOf(messages).values();
    this.#next = this.#chains.next();
  }

  async run(): Promise<PublishResult[]> {
    const begin = () => this.#begin();
    const forget = this.#slots.onRoom(begin);
    this.#signal.addEventListener("abort", begin);
    try {
      this.#begin();
      await this.#done.promise;
    } finally {
      forget();
      this.#signal.removeEventListener("abort", begin);
    }
    return this.#results;
  }

  get #ended(): boolean {
    return this.#next.done === true || this.#out || this.#signal.aborted;
  }

  #begin(): void {
    while (!this.#ended && this.#slots.take(this.#kind)) {
      const chain: Chain<M> = this.#next.value;
      this.#next = this.#chains.next();
      this.#running++;
      this.#send(chain).catch((error: unknown) => this.#done.reject(error));
    }
    if (!this.#ended) return;
    for (; this.#next.done !== true; this.#next = this.#chains.next()) {
      for (const [index] of this.#next.value) this.#tell(index, NOT_TRIED);
    }
    if (this.#running === 0) this.#done.resolve();
  }

  async #send(chain: Chain<M>): Promise<void> {
    let place: "quick" | "long" = this.#kind === "new" ? "quick" : "long";
    try {
      for (let n = 0; n < chain.length && !this.#out && !this.#signal.aborted; n++) {
        const [index, message] = chain[n]!;
        let passedOn = false;
        const onLong = () => {
          place = "long";
          passedOn = true;
          this.#progress!.onResult(index, { status: "running" });
          this.#hold(chain, n + 1);
        };
        const use = this.#slots.begin(this.#kind, this.#progress === undefined ? undefined : onLong);
        // Of a chain in a long place, every message may be passed on.
        let result: PublishResult | undefined;
        try {
          result = await this.#each(message);
        } finally {
          this.#slots.end(use, result?.status === "published");
        }
        this.#tell(index, result);
        if (result.status === "unavailable" && result.route === undefined) this.#out = true;
        if (result.status !== "published") this.#hold(chain, n + 1);
        if (passedOn || result.status !== "published") return;
      }
    } finally {
      this.#running--;
      this.#slots.free(place);
      this.#begin();
    }
  }

  #tell(index: number, result: PublishResult): void {
    this.#results[index] = result;
    this.#progress?.onResult(index, result);
  }

  #hold(chain: Chain<M>, from: number): void {
    for (const [index] of chain.slice(from)) if (this.#results[index] !== HELD) this.#tell(index, HELD);
  }
}

/** The messages by key, in order of first appearance. */
function chainsOf<M extends Keyed>(messages: readonly M[]): Chain<M>[] {
  const chains: Chain<M>[] = [];
  const byKey = new Map<string, Chain<M>>();
  for (const [index, message] of messages.entries()) {
    const { stream = "", key } = message;
    if (key == null) {
      chains.push([[index, message]]);
      continue;
    }
    const name = `${stream}\0${key}`;
    const chain = byKey.get(name);
    if (chain === undefined) {
      const first: Chain<M> = [[index, message]];
      byKey.set(name, first);
      chains.push(first);
    } else {
      chain.push([index, message]);
    }
  }
  return chains;
}
