import type { Clock } from "../../core/contracts.ts";
import { ConfirmedChannel } from "./confirmed-channel.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";

const AFTER_ENDED_MS = 100;

/** One channel to publish on, opened when it is needed and again after it has ended. */
export class ChannelKeeper {
  readonly #link: RabbitmqLink;
  readonly #clock: Clock;
  #channel: ConfirmedChannel | undefined;
  #opening: Promise<ConfirmedChannel> | undefined;

  constructor(link: RabbitmqLink, clock: Clock) {
    this.#link = link;
    this.#clock = clock;
  }

  async get(signal: AbortSignal, onNew: () => void = () => undefined): Promise<ConfirmedChannel> {
    if (this.#channel?.ended === false) return this.#channel;
    onNew();
    const open = () => (this.#channel === undefined ? this.another(signal) : this.afterEnded(signal));
    this.#opening ??= open().finally(() => (this.#opening = undefined));
    this.#channel = await this.#opening;
    return this.#channel;
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

  /** Nobody listens to its confirms any more. */
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
