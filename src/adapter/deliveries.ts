import { backoffMs } from "../core/backoff.ts";
import { orderOf } from "../core/batch-results.ts";
import { operation } from "../core/channels.ts";
import type { Handle, HandleResult } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import type { ReceiveOperation } from "../core/events.ts";
import type { IncomingMessage } from "../core/message.ts";
import type { SubscriberSettings } from "./subscriber-options.ts";

/** One message in hand, and how its broker is told what became of it. */
export interface Delivery {
  readonly message: IncomingMessage;
  /** Failed attempts before this delivery, as far as the broker counts them. */
  readonly attempts: number;
  /** Set when the envelope could not be read: the message is a dead letter without being handled. */
  readonly broken?: unknown;
  /** Aborts when the broker may have given the message to another. */
  readonly signal: AbortSignal;
  /** Aborts when it should not be begun or tried again here, though what has begun may end. */
  readonly ending?: AbortSignal;
  done(): Promise<void> | void;
  /** Told of every failed attempt that another will follow; for brokers that can keep the number. Must not throw. */
  failed?(attempts: number): void;
  /** Puts it aside as a dead letter, then acknowledges it. Rejects when it could not be put aside. */
  moveToDeadLetters(error: unknown, attempts: number): Promise<void>;
  /** It was not done and will not be tried again here: the broker may have it back. */
  release(): Promise<void> | void;
  /**
   * Gives a failed message back to a broker that delivers it again after the delay and counts its attempts; false when
   * that cannot be now. Only asked for a message without a key: nothing waits behind it, so it need not be held here.
   */
  postpone?(delayMs: number): boolean;
}

const receiveOperation = operation<ReceiveOperation>("subscriber", "receive");

/**
 * Hands deliveries to a handler: those of one (stream, key) one after another, in the order they were taken; different
 * keys side by side. A failed message is tried again in place, so that nothing of its key overtakes it; its broker
 * still holds it meanwhile, and gives it to another should this process die.
 */
export class Deliveries {
  readonly #consumer: string;
  readonly #handle: Handle;
  readonly #settings: SubscriberSettings;
  /** Deliveries by key; the first of each is being handled or waits for its next attempt. */
  readonly #chains = new Map<string, Link[]>();
  /** Ready to be handled, but for a free place. */
  readonly #ready: ((mayRun: boolean) => void)[] = [];
  readonly #onChange = new Set<() => void>();
  readonly #stopping = new AbortController();
  #running = 0;
  #inHand = 0;
  #bytes = 0;
  #outages = 0;

  constructor(consumer: string, handle: Handle, settings: SubscriberSettings) {
    this.#consumer = consumer;
    this.#handle = handle;
    this.#settings = settings;
  }

  /** Taken and neither acknowledged nor given back. */
  get inHand(): number {
    return this.#inHand;
  }

  /** Bytes of their bodies. */
  get bytes(): number {
    return this.#bytes;
  }

  /** One more may be taken, whatever its size. */
  get hasRoom(): boolean {
    return this.#inHand < this.#settings.prefetch && this.#bytes < this.#settings.prefetchBytes;
  }

  take(delivery: Delivery): void {
    this.#inHand++;
    this.#bytes += sizeOf(delivery.message);
    const name = nameOf(delivery.message);
    if (name === undefined) {
      void this.#work(undefined, [{ delivery, afterLossOf: new Set() }]);
      return;
    }
    const chain = this.#chains.get(name);
    if (chain !== undefined) {
      const lost = chain.filter((ahead) => this.#givenUp(ahead.delivery));
      chain.push({ delivery, afterLossOf: new Set(lost.map((ahead) => ahead.delivery)) });
      return;
    }
    const first = [{ delivery, afterLossOf: new Set<Delivery>() }];
    this.#chains.set(name, first);
    void this.#work(name, first);
  }

  /** Resolves when one more may be taken, to how many may be if none has more bytes than this; to 0 when it is being stopped. */
  async room(bytesEach = 0): Promise<number> {
    while (!this.hasRoom && !this.#stopping.signal.aborted) await this.#change();
    if (this.#stopping.signal.aborted) return 0;
    const { prefetch, prefetchBytes } = this.#settings;
    const fitting = Math.floor((prefetchBytes - this.#bytes) / bytesEach);
    return Math.max(1, Math.min(prefetch - this.#inHand, fitting));
  }

  /** Resolves when nothing is in hand, or when the subscriber is being stopped. */
  async empty(): Promise<void> {
    while (this.#inHand > 0 && !this.#stopping.signal.aborted) await this.#change();
  }

  /** Gives back what has not begun and waits for what has. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#changed();
    for (const begin of this.#ready.splice(0)) begin(false);
    while (this.#inHand > 0) await this.#change();
    this.#settings.emit({ type: "stopped", consumer: this.#consumer });
  }

  async #work(name: string | undefined, chain: Link[]): Promise<void> {
    const givenBack: Delivery[] = [];
    for (let link = chain[0]; link !== undefined; link = chain[0]) {
      const { delivery, afterLossOf } = link;
      try {
        // What was given back comes again: nothing that was in hand behind it may be handled before.
        if (givenBack.some((lost) => !afterLossOf.has(lost))) await delivery.release();
        else if ((await this.#deliver(delivery)) === "given back") givenBack.push(delivery);
      } catch (error) {
        // The broker could not be told; it delivers the message again.
        this.#outage(error, 0);
      }
      chain.shift();
      this.#inHand--;
      this.#bytes -= sizeOf(delivery.message);
      this.#changed();
    }
    if (name !== undefined) this.#chains.delete(name);
  }

  async #deliver(delivery: Delivery): Promise<"ended" | "given back"> {
    if (!receiveOperation.isHeard) return this.#tryUntilOver(delivery);
    const { message } = delivery;
    const told: ReceiveOperation = { consumer: this.#consumer, system: this.#settings.system, message };
    return receiveOperation.run(told, async () => (told.result = await this.#tryUntilOver(delivery)));
  }

  /** Tries until it is done, dead, or no longer ours. */
  async #tryUntilOver(delivery: Delivery): Promise<"ended" | "given back"> {
    let attempts = delivery.attempts;
    let outages = 0;
    let verdict: Exclude<HandleResult, { status: "done" }> | undefined =
      delivery.broken === undefined ? undefined : { status: "rejected", error: delivery.broken };
    while (!this.#givenUp(delivery)) {
      if (verdict?.status !== "rejected") {
        const result = await this.#try(delivery);
        if (result === undefined) break;
        if (outages > 0 && result.status !== "unavailable") this.#recovered();
        if (result.status === "done") {
          await delivery.done();
          return "ended";
        }
        if (result.status !== "unavailable") attempts++;
        verdict =
          result.status === "failed" && attempts >= this.#settings.maxAttempts
            ? { status: "rejected", error: result.error }
            : result;
      }
      if (verdict.status === "rejected") {
        try {
          await delivery.moveToDeadLetters(verdict.error, attempts);
          if (outages > 0) this.#recovered();
          this.#settings.emit({ type: "dead", ...this.#about(delivery, attempts, verdict.error) });
          return "ended";
        } catch (error) {
          // Where it should go is out: it is kept until that is back.
          await this.#pause(this.#outage(error, ++outages), delivery);
        }
      } else if (verdict.status === "unavailable") {
        await this.#pause(this.#outage(verdict.error, ++outages), delivery);
      } else {
        delivery.failed?.(attempts);
        const delayMs = backoffMs(attempts, this.#settings.backoff);
        this.#settings.emit({ type: "retry", delayMs, ...this.#about(delivery, attempts, verdict.error) });
        if (delivery.message.key == null && delivery.postpone?.(delayMs) === true) return "ended";
        await this.#pause(delayMs, delivery);
      }
    }
    await delivery.release();
    return "given back";
  }

  /** Undefined when there was no place for it before the end. */
  async #try(delivery: Delivery): Promise<HandleResult | undefined> {
    if (this.#running < this.#settings.concurrency) this.#running++;
    else if (!(await new Promise<boolean>((resolve) => this.#ready.push(resolve)))) return undefined;
    try {
      return this.#givenUp(delivery) ? undefined : await this.#handle(delivery.message, delivery.signal);
    } catch (error) {
      return { status: "failed", error };
    } finally {
      const next = this.#ready.shift();
      if (next === undefined) this.#running--;
      else next(true);
    }
  }

  #givenUp({ signal, ending }: Delivery): boolean {
    return this.#stopping.signal.aborted || signal.aborted || ending?.aborted === true;
  }

  async #pause(ms: number, { signal, ending = signal }: Delivery): Promise<void> {
    await this.#settings.clock.sleep(ms, AbortSignal.any([this.#stopping.signal, signal, ending]));
  }

  #about({ message: { id } }: Delivery, attempts: number, error: unknown) {
    return { consumer: this.#consumer, id, attempts, error: describeError(error) };
  }

  #outage(error: unknown, attempt: number): number {
    const delayMs = attempt === 0 ? 0 : Math.max(10, backoffMs(attempt, this.#settings.outageBackoff));
    this.#outages++;
    this.#settings.emit({ type: "outage", consumer: this.#consumer, error: describeError(error), attempt, delayMs });
    return delayMs;
  }

  #recovered(): void {
    if (this.#outages === 0) return;
    this.#outages = 0;
    this.#settings.emit({ type: "recovered", consumer: this.#consumer });
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#onChange.add(resolve));
  }

  #changed(): void {
    const waiting = [...this.#onChange];
    this.#onChange.clear();
    for (const resolve of waiting) resolve();
  }
}

/** The message of a delivery; where it cannot be opened, what is known of it, and why it is a dead letter. */
export function openDelivery<Raw>(
  raw: Raw,
  open: (raw: Raw) => IncomingMessage,
  known: (raw: Raw) => IncomingMessage,
): Pick<Delivery, "message" | "broken"> {
  try {
    return { message: open(raw) };
  } catch (broken) {
    return { message: known(raw), broken };
  }
}

/** A message in the chain of its key. */
interface Link {
  readonly delivery: Delivery;
  /** Those ahead of it that were lost already when it came: it may be their repeat, or behind that. */
  readonly afterLossOf: ReadonlySet<Delivery>;
}

/** Messages of one name are handled one after another: those of a key, and a message and its repeats. */
function nameOf(message: IncomingMessage): string | undefined {
  return orderOf(message) ?? (message.id === undefined ? undefined : `\0${message.id}`);
}

export function sizeOf({ body }: IncomingMessage): number {
  return typeof body === "string" ? Buffer.byteLength(body) : body.byteLength;
}
