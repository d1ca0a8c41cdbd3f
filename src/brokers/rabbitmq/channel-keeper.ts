import type { Clock } from "../../core/contracts.ts";
import { ConfirmedChannel } from "./confirmed-channel.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";

const AFTER_ENDED_MS = 100;
/** A full queue refuses every batch: a channel is replaced for that once in this time. */
const REPLACED_EVERY_MS = 1000;

/** One channel to publish on, opened when it is needed and again after it has ended. */
export class ChannelKeeper {
  readonly #link: RabbitmqLink;
  readonly #clock: Clock;
  #channel: ConfirmedChannel | undefined;
  #opening: Promise<ConfirmedChannel> | undefined;
  /** How many use each channel that `get` has given. */
  readonly #users = new Map<ConfirmedChannel, number>();
  #replacedAt = Number.NEGATIVE_INFINITY;

  constructor(link: RabbitmqLink, clock: Clock) {
    this.#link = link;
    this.#clock = clock;
  }

  /** Every call is followed by `release`. */
  async get(signal: AbortSignal, onNew: () => void = () => undefined): Promise<ConfirmedChannel> {
    const channel = this.#channel?.ended === false ? this.#channel : await this.#open(signal, onNew);
    this.#users.set(channel, (this.#users.get(channel) ?? 0) + 1);
    return channel;
  }

  async #open(signal: AbortSignal, onNew: () => void): Promise<ConfirmedChannel> {
    onNew();
    const open = () => (this.#channel === undefined ? this.another(signal) : this.afterEnded(signal));
    this.#opening ??= open().finally(() => (this.#opening = undefined));
    this.#channel = await this.#opening;
    return this.#channel;
  }

  /** One of its users no longer needs it. */
  release(channel: ConfirmedChannel): void {
    if (channel.refused && channel === this.#channel) this.#replace();
    const others = (this.#users.get(channel) ?? 1) - 1;
    if (others > 0) return void this.#users.set(channel, others);
    this.#users.delete(channel);
    if (channel !== this.#channel) void channel.close();
  }

  /**
   * The next caller gets a new one. The server keeps for each channel where the leader of a queue is: one that was opened
   * while a node died may refuse for ever what a new one takes.
   */
  #replace(): void {
    const now = this.#clock.monotonic();
    if (now - this.#replacedAt < REPLACED_EVERY_MS) return;
    this.#replacedAt = now;
    this.#channel = undefined;
  }

  /**
   * Another one in place of one that has ended. It gets the number of that one, and amqplib may write its opening before
   * the last frames of the other, which RabbitMQ answers by ending the connection: those get time to go out.
   */
  async afterEnded(signal: AbortSignal): Promise<ConfirmedChannel> {
    await this.#clock.sleep(AFTER_ENDED_MS, signal);
    return this.another(signal);
  }

  /** A further one, for the caller to close. */
  async another(signal: AbortSignal): Promise<ConfirmedChannel> {
    const { connection } = this.#link;
    return new ConfirmedChannel(await this.#link.open(() => connection.createConfirmChannel(), this.#clock, signal));
  }

  /** The confirms of this channel are not needed any more. */
  drop(channel: ConfirmedChannel): void {
    if (this.#channel === channel) this.#channel = undefined;
    void channel.close();
  }

  async close(): Promise<void> {
    const channel = this.#channel;
    this.#channel = undefined;
    await channel?.close();
  }
}
