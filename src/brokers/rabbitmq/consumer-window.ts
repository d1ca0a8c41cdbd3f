import type { SubscriberSettings } from "../../adapter/index.ts";

/** How quickly a large message is forgotten. */
const FADING = 0.99;
/** How long acknowledgements may be kept back for another count, and until that is tried again. */
const PATIENCE_MS = 5000;
const PAUSE_MS = 10_000;

/** Consumes anew: cancels, acknowledges, and takes so many messages at once from now on. */
export type Reopen = (count: number, acknowledge: () => void) => Promise<void>;

/**
 * How many messages RabbitMQ may send before it gets an acknowledgement. It counts messages only, so the count follows the
 * sizes of late. A running consumer cannot change its count, and one that is cancelled with messages in hand loses the
 * order of keys to the next. So the acknowledgements of one whole window are kept back until all of it is done: then
 * nothing is in hand or on its way.
 *
 * Every channel begins with the highest count. What a process had in hand goes to a list of its own in a quorum queue, and
 * what is given back from that list goes to its end: a process that took a part of it only, and ended, would leave the
 * first messages behind the others.
 */
export class ConsumerWindow {
  readonly #settings: SubscriberSettings;
  #reopen: Reopen | undefined;
  #count = 0;
  #largest = 0;
  #outstanding = 0;
  #kept: (() => void)[] | undefined;
  #timer: NodeJS.Timeout | undefined;
  #pausedUntil = 0;

  constructor(settings: SubscriberSettings) {
    this.#settings = settings;
  }

  /** A new channel, on which nothing is outstanding; the count for its consumer. */
  begin(reopen: Reopen): number {
    this.end();
    this.#reopen = reopen;
    this.#outstanding = 0;
    return (this.#count = this.#settings.prefetch);
  }

  took(bytes: number): void {
    const { clock } = this.#settings;
    this.#outstanding++;
    this.#largest = Math.max(this.#largest * FADING, bytes, 1);
    if (this.#kept !== undefined || this.#outstanding < this.#count) return;
    const fitting = this.#fitting();
    if (fitting <= 1.5 * this.#count && fitting >= this.#count / 1.5) return;
    if (clock.monotonic() < this.#pausedUntil) return;
    this.#kept = [];
    this.#timer = setTimeout(() => {
      // Something takes long: the others must not wait for it.
      this.#pausedUntil = clock.monotonic() + PAUSE_MS;
      this.flush();
    }, PATIENCE_MS);
  }

  acknowledge(send: () => void): void {
    if (this.#kept === undefined) {
      this.#outstanding--;
      send();
      return;
    }
    this.#kept.push(send);
    if (this.#kept.length >= this.#count) void this.#change();
  }

  /** Sends what was kept back. */
  flush(): void {
    clearTimeout(this.#timer);
    const kept = this.#kept ?? [];
    this.#kept = undefined;
    this.#outstanding -= kept.length;
    for (const send of kept) send();
  }

  /** The channel is gone, and with it what was kept back. */
  end(): void {
    this.flush();
    this.#reopen = undefined;
  }

  #fitting(): number {
    const { prefetch, prefetchBytes } = this.#settings;
    return Math.max(1, Math.min(prefetch, Math.floor(prefetchBytes / this.#largest)));
  }

  async #change(): Promise<void> {
    clearTimeout(this.#timer);
    const reopen = this.#reopen;
    this.#count = this.#fitting();
    // A channel that breaks meanwhile is followed by another one, which begins by itself.
    await reopen?.(this.#count, () => this.flush()).catch(() => undefined);
  }
}
