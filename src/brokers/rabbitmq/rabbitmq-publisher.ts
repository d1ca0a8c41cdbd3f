import {
  callback,
  clock,
  createPublisher,
  ENVELOPE_OPTIONS,
  EncodedAhead,
  flag,
  givenUp,
  milliseconds,
  oneOf,
  readOptions,
  required,
  type Batch,
  type EnvelopeOptions,
  type OptionSpecs,
  type SettingsOf,
} from "../../adapter/index.ts";
import { NOT_TRIED } from "../../core/batch-results.ts";
import type { Clock, Publisher, PublishResult } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { ChannelKeeper } from "./channel-keeper.ts";
import type { ConfirmedChannel } from "./confirmed-channel.ts";
import { RabbitmqBatch } from "./rabbitmq-batch.ts";
import { requireConnection, type RabbitmqConnection } from "./rabbitmq-client.ts";
import { encodeForRabbitmq, type EncodedForRabbitmq } from "./rabbitmq-envelope.ts";
import { KnownExchanges } from "./rabbitmq-exchanges.ts";
import { RabbitmqLink } from "./rabbitmq-link.ts";
import { routeByStream, routeOf, type RabbitmqRoute } from "./rabbitmq-route.ts";
import { RabbitmqRoutes, type Unroutable } from "./rabbitmq-routes.ts";

export interface RabbitmqPublisherOptions extends EnvelopeOptions {
  /** `await connect(url, { recovery: true })` of amqplib. It stays yours to close. */
  connection: RabbitmqConnection;
  /** Where a message goes. Default: the exchange of its stream, with its type as the routing key, "_" as ".". */
  route?: (message: Message) => RabbitmqRoute;
  /** Creates the exchanges that messages go to, as durable topic exchanges. Default false. */
  declare?: boolean;
  /**
   * What becomes of a message that no queue takes, though its exchange is there: RabbitMQ says the same whether the node of
   * the queue is down or no queue is bound. "wait": the route is out until a queue is there. "reject": a dead letter at
   * once, unless the route has worked since the publisher was created. Default "wait".
   */
  unroutable?: Unroutable;
  /** Without a single confirm for this long, the broker counts as out. Default 30 s. */
  timeoutMs?: number;
  clock?: Clock;
}

const OPTIONS = {
  ...ENVELOPE_OPTIONS,
  connection: required(requireConnection),
  route: callback("Pass (message) => ({ exchange, routingKey })", routeByStream),
  declare: flag(false),
  unroutable: oneOf<Unroutable>(["wait", "reject"], "wait"),
  timeoutMs: milliseconds(30_000),
  clock,
} satisfies OptionSpecs<RabbitmqPublisherOptions>;

/**
 * Publishes with confirms: persistent, and `mandatory`, so that a message that no queue takes waits or is rejected, and is
 * never lost. A route that is out, or whose queue is full, holds up its own messages only.
 * Different keys go out together, the messages of a key one after another.
 */
export function createRabbitmqPublisher(options: RabbitmqPublisherOptions): Publisher {
  const renamed = { confirmTimeoutMs: "timeoutMs" };
  const sender = new RabbitmqSender(readOptions("createRabbitmqPublisher", options, OPTIONS, renamed));
  return createPublisher({
    system: "rabbitmq",
    keepsKeyOrder: true,
    publish: (batch) => sender.publish(batch),
    prepare: (messages) => sender.prepare(messages),
    close: () => sender.close(),
  });
}

class RabbitmqSender {
  readonly #link: RabbitmqLink;
  readonly #clock: Clock;
  readonly #channels: ChannelKeeper;
  readonly #exchanges: KnownExchanges;
  readonly #known: RabbitmqRoutes;
  readonly #timeoutMs: number;
  readonly #route: (message: Message) => RabbitmqRoute;
  readonly #ahead: EncodedAhead<EncodedForRabbitmq>;

  constructor(settings: SettingsOf<typeof OPTIONS>) {
    const { connection, route, envelope, source, declare, unroutable, timeoutMs, clock } = settings;
    this.#link = RabbitmqLink.of(connection);
    this.#clock = clock;
    this.#channels = new ChannelKeeper(this.#link, clock);
    this.#exchanges = new KnownExchanges(this.#link, declare, clock);
    this.#known = new RabbitmqRoutes({ link: this.#link, clock, unroutable, timeoutMs });
    this.#timeoutMs = timeoutMs;
    this.#route = route;
    this.#ahead = new EncodedAhead((message) => encodeForRabbitmq(message, envelope, source));
  }

  prepare(messages: readonly Message[]): void {
    this.#ahead.prepare(messages);
  }

  async publish(batch: Batch): Promise<readonly PublishResult[]> {
    this.#link.requireUnblocked();
    const own: ConfirmedChannel[] = [];
    const channel = await this.#channelFor(batch, own);
    try {
      return await this.#publishOn(channel, own, batch);
    } finally {
      if (!own.includes(channel)) this.#channels.release(channel);
      await Promise.all(own.map((one) => one.close()));
    }
  }

  close(): Promise<void> {
    return this.#channels.close();
  }

  async #publishOn(
    channel: ConfirmedChannel,
    own: ConfirmedChannel[],
    batch: Batch,
  ): Promise<readonly PublishResult[]> {
    const { messages, signal } = batch;
    const routes = await this.#exchanges.check(
      messages.map((message) => routeOf(this.#route, message)),
      signal,
    );
    if (!batch.mayBegin()) return messages.map(() => NOT_TRIED);
    const sending = new RabbitmqBatch(channel, batch, {
      routes,
      encoded: this.#ahead.of(messages),
      known: this.#known,
      whyLost: () => this.#link.error,
      reopen: async () => {
        this.#exchanges.forget();
        const another = await this.#channels.afterEnded(signal);
        own.push(another);
        return another;
      },
    });
    const over = new AbortController();
    const giveUp = (): void => sending.giveUp(givenUp(signal));
    signal.addEventListener("abort", giveUp);
    void this.#endSilence(sending, channel, over.signal);
    try {
      const running = sending.run();
      setImmediate(() => this.#ahead.whileWaiting());
      return await running;
    } finally {
      over.abort();
      signal.removeEventListener("abort", giveUp);
    }
  }

  /** What is not confirmed for too long is given up: with its routes if the server answers, else with the whole batch. */
  async #endSilence(batch: RabbitmqBatch, channel: ConfirmedChannel, over: AbortSignal): Promise<void> {
    for (let heard = -1; !over.aborted;) {
      if (heard !== batch.confirms) {
        heard = batch.confirms;
        await this.#clock.sleep(this.#timeoutMs, over);
        continue;
      }
      const answers = await this.#link.answers(this.#clock, over);
      if (over.aborted || heard !== batch.confirms) continue;
      // What it still sends would look like an answer to later messages.
      this.#channels.drop(channel);
      if (answers) batch.skipSilent();
      else batch.giveUp(new UnavailableError(`RabbitMQ confirmed nothing for ${this.#timeoutMs} ms`));
      heard = -1;
    }
  }

  /** What is sent again may get the channel closed, or no answer: that must not touch what is sent for the first time. */
  async #channelFor({ kind, signal }: Batch, own: ConfirmedChannel[]): Promise<ConfirmedChannel> {
    if (kind !== "retry") return this.#channels.get(signal, () => this.#exchanges.forget());
    const channel = await this.#channels.another(signal);
    own.push(channel);
    return channel;
  }
}
