import { backoffMs } from "../../core/backoff.ts";
import type { Handle } from "../../core/contracts.ts";
import { describeError, UnavailableError } from "../../core/errors.ts";
import { Deliveries, repeat, settledWithin, type SubscriberSettings } from "../../adapter/index.ts";
import { InFlightMessages } from "./in-flight-messages.ts";
import type { NatsConnection, NatsMessage, NatsSubscription } from "./nats-client.ts";
import { NatsAnswers } from "./nats-answers.ts";
import { publishDeadLetter } from "./nats-dead-letter.ts";
import { deliveryInfo, HeldMessage, type MessageOwner } from "./nats-delivery.ts";
import { NatsLink } from "./nats-link.ts";
import { ReorderBuffer } from "./reorder-buffer.ts";
import { missing, type PreparedConsumer } from "./prepare-consumer.ts";
import { PullRequests } from "./pull-requests.ts";
import { countLost, recoverLost } from "./recover-lost.ts";

const LOOK_EVERY_MS = 1000;
const STOP_WAIT_MS = 2000;
const SAME_CONSUMER_MS = 1000;

export interface ConsumptionOptions extends PreparedConsumer {
  readonly connection: NatsConnection;
  /** One process at a time, in the order of keys. */
  readonly ordered: boolean;
  readonly inboxPrefix: string;
  readonly settings: SubscriberSettings;
  readonly handle: Handle;
}

/** From start to stop of a subscriber: asks for messages, holds them while they are handled, and comes back after outages. */
export class NatsConsumption implements MessageOwner {
  readonly #options: ConsumptionOptions;
  readonly #deliveries: Deliveries;
  readonly #inFlight = new InFlightMessages();
  readonly #requests: PullRequests;
  readonly #stopping = new AbortController();
  readonly #ended = new AbortController();
  readonly #link: NatsLink;
  readonly #answers: NatsAnswers;
  #reorder: ReorderBuffer | undefined;
  /** What came before it was known whether something is missing: a request may outlive its connection. */
  #early: HeldMessage[] = [];
  #subscription: NatsSubscription | undefined;
  #created: number | undefined;
  #loop: Promise<void> | undefined;
  #wake: () => void = () => undefined;
  /** Why the consumer has to be looked at before messages are asked for. */
  #trouble: UnavailableError | undefined;
  #troubles = 0;
  #pauseMs = 0;

  constructor(options: ConsumptionOptions) {
    const { api, connection, consumer, durable, handle, inboxPrefix, settings, stream } = options;
    this.#options = options;
    this.#requests = new PullRequests(connection, api.subject(`CONSUMER.MSG.NEXT.${stream}.${durable}`), inboxPrefix);
    this.#deliveries = new Deliveries(consumer, handle, settings);
    this.#link = new NatsLink(connection, {
      down: (error) => this.#troubled(error),
      up: () => this.#wake(),
      denied: (error) => this.#denied(error),
    });
    this.#answers = new NatsAnswers(connection, this.#link, (error) => this.#troubled(error));
  }

  async start(): Promise<void> {
    const { connection, ackWaitMs, settings } = this.#options;
    this.#subscription = connection.subscribe(`${this.#requests.inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#receive(message);
        else this.#troubled(new UnavailableError(`NATS ended the subscription: ${error.message}`));
      },
    });
    try {
      await this.#recover();
    } catch (error) {
      this.#subscription.unsubscribe();
      this.#link.end();
      throw error;
    }
    void repeat(Math.max(30, ackWaitMs / 3), () => this.#showLife(), this.#ended.signal, settings.clock);
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake();
    const stopped = this.#deliveries.stop();
    await this.#loop;
    for (const held of this.#waiting()) this.release(held);
    // What is on its way here goes back; so does what has not begun.
    if (this.#link.down === undefined) await this.#briefly(() => this.#subscription?.drain());
    else this.#subscription?.unsubscribe();
    await stopped;
    this.#ended.abort();
    if (this.#link.down === undefined) await this.#briefly(() => this.#options.connection.flush());
    this.#link.end();
  }

  /** The server may be gone, and with it the answer. */
  async #briefly(action: () => Promise<unknown> | undefined): Promise<void> {
    const done = (async () => action())().catch(() => undefined);
    await settledWithin(done, STOP_WAIT_MS, undefined, this.#options.settings.clock);
  }

  done(held: HeldMessage): void {
    if (held.signal.aborted) return;
    this.#answers.settle(held.reply, "+ACK");
    this.#inFlight.settle(held);
    this.#wakeForRoom();
  }

  async moveToDeadLetters(held: HeldMessage, error: unknown, attempts: number): Promise<void> {
    const { connection, consumer, stream, deadLetter } = this.#options;
    if (held.signal.aborted) return;
    if (this.#link.down !== undefined) throw this.#link.down;
    await publishDeadLetter({ connection, subject: deadLetter, stream, consumer }, held, error, attempts);
    if (held.signal.aborted) return;
    this.#answers.settle(held.reply, "+TERM");
    this.#inFlight.settle(held);
    this.#wakeForRoom();
  }

  release(held: HeldMessage): void {
    if (held.signal.aborted) return;
    this.#inFlight.remove(held);
    this.#answers.say(held.reply, "-NAK");
    this.#wakeForRoom();
  }

  postpone(held: HeldMessage, delayMs: number): boolean {
    if (held.signal.aborted) return false;
    if (!this.#answers.say(held.reply, `-NAK {"delay":${Math.max(1, delayMs) * 1e6}}`)) return false;
    if (this.#options.ordered) this.#inFlight.postpone(held);
    else this.#inFlight.remove(held);
    this.#wakeForRoom();
    return true;
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      if (this.#trouble !== undefined && this.#link.down === undefined) await this.#mend();
      try {
        if (this.#trouble === undefined) await this.#look();
      } catch (cause) {
        this.#troubled(new UnavailableError(`The NATS client failed: ${describeError(cause)}`, { cause }));
      }
      await this.#sleep();
    }
  }

  /**
   * Asks for more, lets go what waited for lost messages when all are here, and checks that the server still answers.
   */
  async #look(): Promise<void> {
    const { clock, prefetch, prefetchBytes } = this.#options.settings;
    const now = clock.monotonic();
    if (this.#requests.seemsDead(now)) {
      this.#troubled(new UnavailableError("NATS sends no heartbeats for this consumer"));
      return;
    }
    if (this.#reorder !== undefined) await this.#tendReorder(this.#reorder, now);
    if (this.#requests.open > 0) return;
    if (this.#reorder !== undefined) {
      // Nothing goes on without these, however large they are.
      const wanted = this.#reorder.wants(now, prefetch);
      if (wanted > 0) this.#requests.ask(wanted, now);
    } else if (this.#hasRoom) {
      // One message always passes.
      if (this.#requests.endedBySize) this.#requests.ask(1, now);
      else
        this.#requests.ask(prefetch - this.#inFlight.size, now, this.#maxBytes(prefetchBytes - this.#inFlight.bytes));
    }
  }

  /** A consumer may have a limit of its own to what is asked for. */
  #maxBytes(free: number): number {
    const { maxRequestBytes } = this.#options;
    return maxRequestBytes > 0 ? Math.min(free, maxRequestBytes) : free;
  }

  async #tendReorder(reorder: ReorderBuffer, now: number): Promise<void> {
    const { api, stream, durable } = this.#options;
    if (!reorder.isComplete(now) && this.#requests.silence(now) > LOOK_EVERY_MS / 2) {
      const info = await api.consumer(stream, durable).catch(() => undefined);
      if (info !== undefined) reorder.correct(countLost(this.#inFlight, info).count);
    }
    if (reorder.isComplete(now)) this.#releaseReordered();
  }

  #releaseReordered(): void {
    const held = this.#reorder?.release() ?? [];
    this.#reorder = undefined;
    for (const one of held) this.#deliveries.take(one);
  }

  /** Less than a quarter is not worth a request. */
  get #hasRoom(): boolean {
    const { prefetch, prefetchBytes } = this.#options.settings;
    return prefetch - this.#inFlight.size >= Math.ceil(prefetch / 4) && this.#inFlight.bytes <= 0.75 * prefetchBytes;
  }

  #receive(message: NatsMessage): void {
    this.#requests.heard(this.#options.settings.clock.monotonic());
    const reply = message.reply ?? "";
    const info = deliveryInfo(reply);
    if (info === undefined) {
      this.#status(message);
      return;
    }
    this.#troubles = 0;
    if (this.#requests.delivered()) this.#wake();
    const { sequence, stamp, count } = info;
    const known = this.#inFlight.get(sequence);
    if (known !== undefined && known.stamp === stamp) {
      known.reply = reply;
      return;
    }
    const settled = this.#inFlight.settledStamp(sequence);
    if (settled === stamp) {
      this.#answers.say(reply, "+ACK");
      return;
    }
    // Another message at the same place: the stream was made anew.
    if (known !== undefined || settled !== undefined) this.#reset();
    if (this.#stopping.signal.aborted) {
      this.#answers.say(reply, "-NAK");
      return;
    }
    const attempts = Math.max(0, count - 1 - this.#inFlight.timesLost(sequence));
    this.#take(new HeldMessage(message, info, attempts, this.#inFlight.signal, this));
  }

  #take(held: HeldMessage): void {
    this.#inFlight.add(held);
    if (this.#trouble !== undefined) {
      this.#early.push(held);
      return;
    }
    if (this.#reorder === undefined) {
      this.#deliveries.take(held);
      return;
    }
    this.#reorder.hold(held);
    if (this.#reorder.isComplete(this.#options.settings.clock.monotonic())) {
      this.#releaseReordered();
      this.#wake();
    }
  }

  #status(message: NatsMessage): void {
    const status = this.#requests.status(message);
    if (status === true) this.#wake();
    else if (status !== false) this.#troubled(status);
  }

  #troubled(error: UnavailableError): void {
    const { settings, consumer } = this.#options;
    this.#requests.forget();
    if (this.#trouble === undefined && !this.#stopping.signal.aborted) {
      settings.emit({ type: "outage", consumer, error: describeError(error), attempt: 1, delayMs: 0 });
    }
    this.#trouble = error;
    this.#wake();
  }

  #denied(error: Error): void {
    const { stream, durable } = this.#options;
    if (!error.message.includes(`.${stream}.${durable}`) && !error.message.includes(this.#requests.inbox)) return;
    this.#troubled(
      new UnavailableError(`NATS does not allow it: ${error.message}`, { fix: "Give this user the right" }),
    );
  }

  async #mend(): Promise<void> {
    const { settings, consumer } = this.#options;
    const seen = this.#trouble;
    // At once the first time; a consumer that fails again without having delivered anything is given time.
    if (this.#troubles > 0) await settings.clock.sleep(this.#pauseMs, this.#stopping.signal);
    if (this.#link.down !== undefined || this.#stopping.signal.aborted) return;
    this.#pauseMs = Math.max(20, backoffMs(++this.#troubles, settings.outageBackoff));
    try {
      await this.#recover();
      if (this.#trouble !== seen) return;
      this.#trouble = undefined;
      this.#sortOut();
      settings.emit({ type: "recovered", consumer });
    } catch (error) {
      const [attempt, delayMs] = [this.#troubles, this.#pauseMs];
      settings.emit({ type: "outage", consumer, error: describeError(error), attempt, delayMs });
    }
  }

  /** Finds the consumer as it is now, and sees to what was lost. */
  async #recover(): Promise<void> {
    const { api, connection, stream, durable, ordered, settings, ackWaitMs } = this.#options;
    const info =
      (await api.consumer(stream, durable)) ??
      missing("durable", `The stream "${stream}" has no consumer "${durable}" any more`);
    const created = Date.parse(info.created);
    const first = this.#created === undefined;
    // A server that was started again gives a time that differs by a few milliseconds.
    if (Math.abs(created - (this.#created ?? created)) > SAME_CONSUMER_MS) this.#reset();
    this.#created = created;
    this.#answers.catchUp();
    this.#showLife();
    if (!ordered) return;
    const lost = await recoverLost(
      { connection, api, inFlight: this.#inFlight, stream, durable, innocent: !first },
      info,
    );
    this.#early = this.#waiting();
    this.#reorder = lost.count > 0 ? new ReorderBuffer(lost, settings.clock.monotonic(), ackWaitMs) : undefined;
  }

  /** What was held back before waits on for lost messages, or may go now. */
  #sortOut(): void {
    for (const held of this.#early.splice(0)) {
      if (this.#reorder === undefined) this.#deliveries.take(held);
      else this.#reorder.keep(held);
    }
  }

  /** Takes out what is held back, in the order of the stream. */
  #waiting(): HeldMessage[] {
    const waiting = [...(this.#reorder?.release() ?? []), ...this.#early.splice(0)];
    return waiting.sort((a, b) => a.sequence - b.sequence);
  }

  #reset(): void {
    this.#reorder = undefined;
    this.#early = [];
    this.#answers.forget();
    this.#inFlight.reset();
  }

  #showLife(): void {
    for (const { reply } of this.#inFlight) if (!this.#answers.say(reply, "+WPI")) return;
  }

  #wakeForRoom(): void {
    if (this.#requests.open === 0 && this.#hasRoom) this.#wake();
  }

  async #sleep(): Promise<void> {
    const { clock } = this.#options.settings;
    const nap = new AbortController();
    this.#wake = () => nap.abort();
    if (this.#needsNoSleep()) return;
    await clock.sleep(LOOK_EVERY_MS, nap.signal);
  }

  /** Something happened since the last look. */
  #needsNoSleep(): boolean {
    if (this.#stopping.signal.aborted) return true;
    if (this.#trouble !== undefined) return this.#link.down === undefined;
    return this.#requests.open === 0 && this.#reorder === undefined && this.#hasRoom;
  }
}
