import type { Clock } from "../../core/contracts.ts";
import { ConfirmedChannel } from "./confirmed-channel.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";

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
    this.#opening ??= this.another(signal).finally(() => (this.#opening = undefined));
    this.#channel = await this.#opening;
    return this.#channel;
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
