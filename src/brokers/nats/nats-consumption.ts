import { randomUUID } from "node:crypto";
import { backoffMs } from "../../core/backoff.ts";
import type { Handle } from "../../core/contracts.ts";
import { describeError, UnavailableError } from "../../core/errors.ts";
import { Deliveries } from "../shared/deliveries.ts";
import type { SubscriberSettings } from "../shared/subscriber-options.ts";
import { MessageHand } from "./message-hand.ts";
import type { NatsConnection, NatsMessage, NatsSubscription } from "./nats-client.ts";
import { publishDeadLetter } from "./nats-dead-letter.ts";
import { deliveryInfo, HeldMessage, type Hands } from "./nats-delivery.ts";
import { statusOf } from "./nats-headers.ts";
import { NatsLink } from "./nats-link.ts";
import { OrderGate } from "./order-gate.ts";
import { missing, type PreparedConsumer } from "./prepare-consumer.ts";
import { countLost, recoverLost } from "./recover-lost.ts";

const PULL_EXPIRES_MS = 30_000;
const HEARTBEAT_MS = 5000;
const LOOK_EVERY_MS = 1000;
const STOP_WAIT_MS = 2000;
const SAME_CONSUMER_MS = 1000;

export interface ConsumptionOptions extends PreparedConsumer {
  readonly connection: NatsConnection;
  readonly shared: boolean;
  readonly inboxPrefix: string;
  readonly settings: SubscriberSettings;
  readonly handle: Handle;
}

/** From start to stop of a subscriber: asks for messages, holds them while they are handled, and comes back after outages. */
export class NatsConsumption implements Hands {
  readonly #options: ConsumptionOptions;
  readonly #deliveries: Deliveries;
  readonly #hand = new MessageHand();
  readonly #inbox: string;
  readonly #stopping = new AbortController();
  readonly #link: NatsLink;
  /** Answers that could not be sent while the connection was down. */
  #unsent: { reply: string; word: string }[] = [];
  #gate: OrderGate | undefined;
  #subscription: NatsSubscription | undefined;
  #created: number | undefined;
  #loop: Promise<void> | undefined;
  #lifeTimer: NodeJS.Timeout | undefined;
  #wake: () => void = () => undefined;
  #pulls = 0;
  /** Messages that the present pull may still bring. */
  #requested = 0;
  #heardAt = 0;
  /** Why the consumer has to be looked at before messages are asked for. */
  #trouble: UnavailableError | undefined;
  #troubles = 0;
  #pauseMs = 0;

  constructor(options: ConsumptionOptions) {
    const { connection, consumer, handle, settings } = options;
    this.#options = options;
    this.#inbox = `${options.inboxPrefix}.${randomUUID()}`;
    this.#deliveries = new Deliveries(consumer, handle, settings);
    this.#link = new NatsLink(connection, {
      down: (error) => this.#troubled(error),
      up: () => this.#wake(),
      denied: (error) => this.#denied(error),
    });
  }

  async start(): Promise<void> {
    const { connection, ackWaitMs } = this.#options;
    this.#subscription = connection.subscribe(`${this.#inbox}.*`, {
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
    this.#lifeTimer = setInterval(() => this.#showLife(), Math.max(30, ackWaitMs / 3));
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake();
    const stopped = this.#deliveries.stop();
    await this.#loop;
    for (const held of this.#gate?.open() ?? []) this.release(held);
    // What is on its way here goes back; so does what has not begun.
    if (this.#link.down === undefined) await this.#briefly(this.#subscription?.drain());
    else this.#subscription?.unsubscribe();
    await stopped;
    clearInterval(this.#lifeTimer);
    if (this.#link.down === undefined) await this.#briefly(this.#options.connection.flush());
    this.#link.end();
  }

  /** The server may be gone, and with it the answer. */
  async #briefly(action: Promise<unknown> | undefined): Promise<void> {
    const late = new AbortController();
    const done = Promise.resolve(action).then(
      () => late.abort(),
      () => late.abort(),
    );
    await Promise.race([done, this.#options.settings.clock.sleep(STOP_WAIT_MS, late.signal)]);
  }

  done(held: HeldMessage): void {
    if (held.signal.aborted) return;
    this.#answer(held.reply, "+ACK");
    this.#hand.settle(held);
    this.#wakeForRoom();
  }

  async bury(held: HeldMessage, error: unknown, attempts: number): Promise<void> {
    const { connection, consumer, stream, deadLetter } = this.#options;
    if (held.signal.aborted) return;
    if (this.#link.down !== undefined) throw this.#link.down;
    await publishDeadLetter({ connection, subject: deadLetter, stream, consumer }, held, error, attempts);
    if (held.signal.aborted) return;
    this.#answer(held.reply, "+TERM");
    this.#hand.settle(held);
    this.#wakeForRoom();
  }

  release(held: HeldMessage): void {
    if (held.signal.aborted) return;
    this.#hand.remove(held);
    if (this.#link.down === undefined) this.#options.connection.publish(held.reply, "-NAK");
    this.#wakeForRoom();
  }

  postpone(held: HeldMessage, delayMs: number): boolean {
    if (held.signal.aborted || this.#link.down !== undefined) return false;
    this.#options.connection.publish(held.reply, `-NAK ${JSON.stringify({ delay: Math.max(1, delayMs) * 1e6 })}`);
    if (this.#options.shared) this.#hand.remove(held);
    else this.#hand.postpone(held);
    this.#wakeForRoom();
    return true;
  }

  #answer(reply: string, word: string): void {
    if (this.#link.down === undefined) this.#options.connection.publish(reply, word);
    else this.#unsent.push({ reply, word });
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      if (this.#trouble !== undefined && this.#link.down === undefined) await this.#mend();
      if (this.#trouble === undefined) await this.#look();
      await this.#sleep();
    }
  }

  /** Asks for more, opens the gate when all are here, and sees whether the server is still with us. */
  async #look(): Promise<void> {
    const { clock, prefetch } = this.#options.settings;
    const now = clock.monotonic();
    if (this.#requested > 0 && now > this.#heardAt + 3 * HEARTBEAT_MS) {
      this.#troubled(new UnavailableError("NATS sends no heartbeats for this consumer"));
      return;
    }
    if (this.#gate !== undefined) await this.#tendGate(this.#gate, now);
    if (this.#requested > 0) return;
    const room = this.#gate?.wants(now, prefetch) ?? prefetch - this.#hand.size;
    if (this.#gate === undefined ? room >= this.#leastPull : room > 0) this.#pull(room, now);
  }

  async #tendGate(gate: OrderGate, now: number): Promise<void> {
    const { api, stream, durable } = this.#options;
    if (!gate.mayOpen(now) && now > this.#heardAt + LOOK_EVERY_MS / 2) {
      const info = await api.consumer(stream, durable).catch(() => undefined);
      if (info !== undefined) gate.correct(countLost(this.#hand, info).count);
    }
    if (gate.mayOpen(now)) this.#openGate();
  }

  #openGate(): void {
    const held = this.#gate?.open() ?? [];
    this.#gate = undefined;
    for (const one of held) this.#deliveries.take(one);
  }

  /** Fewer than this are not worth a request. */
  get #leastPull(): number {
    return Math.ceil(this.#options.settings.prefetch / 4);
  }

  #pull(batch: number, now: number): void {
    const { api, stream, durable, connection } = this.#options;
    this.#requested = batch;
    this.#heardAt = now;
    const request = { batch, expires: PULL_EXPIRES_MS * 1e6, idle_heartbeat: HEARTBEAT_MS * 1e6 };
    connection.publish(api.subject(`CONSUMER.MSG.NEXT.${stream}.${durable}`), JSON.stringify(request), {
      reply: `${this.#inbox}.${++this.#pulls}`,
    });
  }

  #receive(message: NatsMessage): void {
    this.#heardAt = this.#options.settings.clock.monotonic();
    const reply = message.reply ?? "";
    const info = deliveryInfo(reply);
    if (info === undefined) {
      this.#status(message);
      return;
    }
    this.#troubles = 0;
    if (this.#requested > 0 && --this.#requested === 0) this.#wake();
    const { sequence, stamp, count } = info;
    const known = this.#hand.get(sequence);
    if (known !== undefined && known.stamp === stamp) {
      known.reply = reply;
      return;
    }
    const settled = this.#hand.settledStamp(sequence);
    if (settled === stamp) {
      this.#answer(reply, "+ACK");
      return;
    }
    // Another message at the same place: the stream was made anew.
    if (known !== undefined || settled !== undefined) this.#reset();
    if (this.#stopping.signal.aborted) {
      this.#options.connection.publish(reply, "-NAK");
      return;
    }
    const attempts = Math.max(0, count - 1 - this.#hand.timesLost(sequence));
    this.#take(new HeldMessage(message, info, attempts, this.#hand.signal, this));
  }

  #take(held: HeldMessage): void {
    this.#hand.add(held);
    if (this.#gate === undefined) {
      this.#deliveries.take(held);
      return;
    }
    this.#gate.hold(held);
    if (this.#gate.mayOpen(this.#options.settings.clock.monotonic())) {
      this.#openGate();
      this.#wake();
    }
  }

  #status(message: NatsMessage): void {
    const status = statusOf(message);
    if (status === undefined || status.code === 100 || message.subject !== `${this.#inbox}.${this.#pulls}`) return;
    this.#requested = 0;
    // 404 and 408: the time of the request is over.
    if (status.code === 404 || status.code === 408) this.#wake();
    else this.#troubled(new UnavailableError(`NATS ended the request: ${status.description} (${status.code})`));
  }

  #troubled(error: UnavailableError): void {
    const { settings, consumer } = this.#options;
    this.#requested = 0;
    if (this.#trouble === undefined && !this.#stopping.signal.aborted) {
      settings.emit({ type: "outage", consumer, error: describeError(error), attempt: 1, delayMs: 0 });
    }
    this.#trouble = error;
    this.#wake();
  }

  #denied(error: Error): void {
    const { stream, durable } = this.#options;
    if (!error.message.includes(`.${stream}.${durable}`) && !error.message.includes(this.#inbox)) return;
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
      settings.emit({ type: "recovered", consumer });
    } catch (error) {
      const [attempt, delayMs] = [this.#troubles, this.#pauseMs];
      settings.emit({ type: "outage", consumer, error: describeError(error), attempt, delayMs });
    }
  }

  /** Finds the consumer as it is now, and sees to what was lost. */
  async #recover(): Promise<void> {
    const { api, connection, stream, durable, shared, settings, ackWaitMs } = this.#options;
    const info =
      (await api.consumer(stream, durable)) ??
      missing("durable", `The stream "${stream}" has no consumer "${durable}" any more`);
    const created = Date.parse(info.created);
    const first = this.#created === undefined;
    // A server that was started again gives a time that differs by a few milliseconds.
    if (Math.abs(created - (this.#created ?? created)) > SAME_CONSUMER_MS) this.#reset();
    this.#created = created;
    for (const { reply, word } of this.#unsent.splice(0)) connection.publish(reply, word);
    this.#showLife();
    if (shared) return;
    const lost = await recoverLost({ connection, api, hand: this.#hand, stream, durable, innocent: !first }, info);
    const waiting = this.#gate?.open() ?? [];
    this.#gate = undefined;
    if (lost.count > 0) this.#gate = new OrderGate(lost, settings.clock.monotonic(), ackWaitMs);
    for (const held of waiting) this.#regate(held);
  }

  /** What waited at the gate before the connection broke waits on, if there is a gate again. */
  #regate(held: HeldMessage): void {
    if (held.signal.aborted) return;
    if (this.#gate === undefined) this.#deliveries.take(held);
    else this.#gate.keep(held);
  }

  #reset(): void {
    this.#gate = undefined;
    this.#unsent = [];
    this.#hand.reset();
  }

  #showLife(): void {
    if (this.#link.down !== undefined) return;
    for (const { reply } of this.#hand) this.#options.connection.publish(reply, "+WPI");
  }

  #wakeForRoom(): void {
    if (this.#requested === 0 && this.#options.settings.prefetch - this.#hand.size >= this.#leastPull) this.#wake();
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
    if (this.#requested > 0) return false;
    return this.#gate === undefined && this.#options.settings.prefetch - this.#hand.size >= this.#leastPull;
  }
}
