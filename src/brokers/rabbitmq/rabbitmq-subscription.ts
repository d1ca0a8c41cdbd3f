import { Deliveries, openDelivery, type Delivery, type SubscriberSettings } from "../../adapter/index.ts";
import { backoffMs } from "../../core/backoff.ts";
import type { Handle } from "../../core/contracts.ts";
import { describeError, errorCode, PermanentError, UnavailableError } from "../../core/errors.ts";
import type { IncomingMessage } from "../../core/message.ts";
import { ConsumerWindow } from "./consumer-window.ts";
import { endChannel } from "./end-channel.ts";
import type { RabbitmqChannel, RabbitmqMessage } from "./rabbitmq-client.ts";
import { RabbitmqDeadLetters } from "./rabbitmq-dead-letters.ts";
import { deliveriesBefore, openFromRabbitmq } from "./rabbitmq-envelope.ts";
import { deletedMeanwhile, missingQueue, topologyError, unavailable } from "./rabbitmq-errors.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";
import { prepareTopology, type Topology } from "./rabbitmq-topology.ts";

const MAX_SURVIVALS = 10_000;
/** The server passes acknowledgements on to a quorum queue in parts, and forgets the last ones when the channel ends. */
const ACKNOWLEDGED_MS = 100;

export interface SubscriptionOptions {
  readonly link: RabbitmqLink;
  readonly topology: Topology;
  readonly settings: SubscriberSettings;
  readonly maxDeliveries: number;
  readonly consumer: string;
  readonly handle: Handle;
}

/** From start to stop: consumes the queue, on one channel after another as connections come and go. */
export class RabbitmqSubscription {
  readonly #options: SubscriptionOptions;
  readonly #deliveries: Deliveries;
  readonly #deadLetters: RabbitmqDeadLetters;
  readonly #stopping = new AbortController();
  /** By message id: how often it went back to the server with this process alive. */
  readonly #survivals = new Map<string, number>();
  readonly #window: ConsumerWindow;
  /** Deliveries that wait for room, in order. */
  readonly #waiting: (() => void)[] = [];
  #channel: RabbitmqChannel | undefined;
  #acknowledgedAt = Number.NEGATIVE_INFINITY;
  #connecting: Promise<void> = Promise.resolve();

  constructor(options: SubscriptionOptions) {
    const { consumer, handle, settings, link, topology } = options;
    this.#options = options;
    this.#deliveries = new Deliveries(consumer, handle, settings);
    this.#deadLetters = new RabbitmqDeadLetters(link, settings.clock, topology);
    this.#window = new ConsumerWindow(settings);
  }

  /**
   * Resolves when messages come. Rejects for an error that only an operator can mend; waits while the server is out.
   */
  start(): Promise<void> {
    return (this.#connecting = this.#connect(false, (error) => errorCode(error) !== "unavailable"));
  }

  /** Takes no more; a `start` that waits for the server ends. */
  cancel(): void {
    this.#stopping.abort();
  }

  async stop(): Promise<void> {
    this.cancel();
    // The consumer is not cancelled first: the server would give later messages of a key to another one.
    await this.#deliveries.stop();
    this.#window.flush();
    await this.#connecting.catch(() => undefined);
    const { clock } = this.#options.settings;
    const rest = this.#acknowledgedAt + ACKNOWLEDGED_MS - clock.monotonic();
    if (rest > 0) await clock.sleep(rest);
    const channel = this.#channel;
    await Promise.all([channel && endChannel(channel), this.#deadLetters.close()]);
  }

  async #connect(again: boolean, hopeless: (error: unknown) => boolean): Promise<void> {
    const { consumer, settings, link } = this.#options;
    for (let attempt = 1; !this.#stopping.signal.aborted; attempt++) {
      try {
        await this.#consume();
        if (again || attempt > 1) settings.emit({ type: "recovered", consumer });
        return;
      } catch (error) {
        if (this.#stopping.signal.aborted) return;
        if (hopeless(error)) throw error;
        const delayMs = Math.max(10, backoffMs(attempt, settings.outageBackoff));
        settings.emit({ type: "outage", consumer, error: describeError(error), attempt, delayMs });
        // The client tries to connect at a pace of its own: once it has, nothing is left to wait for.
        if (await link.rest(delayMs, settings.clock, this.#stopping.signal)) attempt = 0;
      }
    }
  }

  async #consume(): Promise<void> {
    const { link, topology, settings } = this.#options;
    const { signal } = this.#stopping;
    await link.briefly(settings.clock, signal, (channel) => prepareTopology(channel, topology));
    const held = new AbortController();
    const channel = await link.open(() => link.connection.createChannel(), settings.clock, signal);
    try {
      await link.answered(this.#subscribe(channel, held), settings.clock, signal);
      this.#channel = channel;
    } catch (error) {
      held.abort();
      void endChannel(channel);
      throw error;
    }
  }

  async #subscribe(channel: RabbitmqChannel, held: AbortController): Promise<void> {
    const { link, topology } = this.#options;
    let begun = false;
    let failure: Error | undefined;
    channel.on("error", (error: Error) => (failure = error));
    channel.on("close", () => {
      held.abort();
      this.#window.end();
      if (begun) this.#lost(failure ?? link.error);
    });
    const cancelled = (): void => {
      failure = new UnavailableError(`RabbitMQ ended the subscription: the queue "${topology.queue}" was deleted`);
      void endChannel(channel);
    };
    const consume = async (count: number): Promise<string> => {
      await channel.prefetch(count);
      const { consumerTag } = await channel.consume(topology.queue, (message) =>
        message === null ? cancelled() : this.#receive(message, channel, held.signal),
      );
      return consumerTag;
    };
    let tag = "";
    const first = this.#window.begin(async (count, acknowledge) => {
      await channel.cancel(tag);
      acknowledge();
      if (!this.#stopping.signal.aborted) tag = await consume(count);
    });
    try {
      tag = await consume(first);
    } catch (error) {
      const what = `the queue "${topology.queue}"`;
      throw topologyError(error, what, () =>
        topology.declaration === undefined
          ? missingQueue(topology.queue, "queue", error)
          : deletedMeanwhile(what, error),
      );
    }
    begun = true;
    if (held.signal.aborted) throw unavailable(failure ?? link.error);
  }

  #lost(error: unknown): void {
    const { consumer, settings } = this.#options;
    if (this.#stopping.signal.aborted) return;
    settings.emit({ type: "outage", consumer, error: describeError(unavailable(error)), attempt: 0, delayMs: 0 });
    this.#connecting = this.#connect(true, () => false);
  }

  /** Hands it on when there is room; the count of the consumer is but a guess at that. */
  #receive(message: RabbitmqMessage, channel: RabbitmqChannel, signal: AbortSignal): void {
    this.#window.took(message.content.length);
    this.#waiting.push(() => this.#take(message, channel, signal));
    if (this.#waiting.length === 1) void this.#handOn();
  }

  async #handOn(): Promise<void> {
    for (let take = this.#waiting[0]; take !== undefined; take = this.#waiting[0]) {
      if (!this.#deliveries.hasRoom) await this.#deliveries.room();
      take();
      this.#waiting.shift();
    }
  }

  #take(message: RabbitmqMessage, channel: RabbitmqChannel, signal: AbortSignal): void {
    // Left to the channel's end, when the server takes it back together with the others, in order.
    if (signal.aborted || this.#stopping.signal.aborted) return;
    const { consumer } = this.#options;
    const opened = this.#opened(message);
    const { id } = opened.message;
    const acknowledge = (): void => {
      if (signal.aborted) return this.#survived(id);
      this.#window.acknowledge(() => {
        if (signal.aborted) return this.#survived(id);
        channel.ack(message);
        this.#acknowledgedAt = this.#options.settings.clock.monotonic();
        if (id !== undefined) this.#survivals.delete(id);
      });
    };
    this.#deliveries.take({
      ...opened,
      signal,
      done: acknowledge,
      moveToDeadLetters: async (error, attempts) => {
        await this.#deadLetters.put(message, consumer, error, attempts, signal);
        acknowledge();
      },
      release: () => this.#survived(id),
    });
  }

  /** The message comes again because its connection broke: it did not kill a process. */
  #survived(id: string | undefined): void {
    if (id === undefined) return;
    if (this.#survivals.size >= MAX_SURVIVALS) this.#survivals.clear();
    this.#survivals.set(id, (this.#survivals.get(id) ?? 0) + 1);
  }

  #opened(delivery: RabbitmqMessage): Pick<Delivery, "message" | "attempts" | "broken"> {
    const { maxDeliveries } = this.#options;
    const before = deliveriesBefore(delivery);
    const opened = openDelivery(delivery, openFromRabbitmq, unreadable);
    const fatal = before - (this.#survivals.get(opened.message.id ?? "") ?? 0);
    if (opened.broken !== undefined || fatal < maxDeliveries) return { ...opened, attempts: 0 };
    return { ...opened, attempts: before, broken: deliveredTooOften(before) };
  }
}

/** What is left to say of a message whose envelope cannot be read. */
function unreadable({ content: body, fields, properties }: RabbitmqMessage): IncomingMessage {
  const id = typeof properties.messageId === "string" ? properties.messageId : undefined;
  return { id, body, headers: {}, routingKey: fields.routingKey };
}

function deliveredTooOften(times: number): PermanentError {
  return new PermanentError(`Delivered ${times} times and never finished: its handler may kill the process`, {
    fix: "Look at its handler, then send it again; or raise maxDeliveries",
  });
}
