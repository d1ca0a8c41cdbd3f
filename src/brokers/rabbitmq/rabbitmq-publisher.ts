import { systemClock } from "../../core/clock.ts";
import type { ClaimKind, Clock, Publisher, PublishProgress, PublishResult } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import { requireEnvelope, type EnvelopeFormat } from "../shared/envelope.ts";
import { SealedAhead } from "../shared/sealed-ahead.ts";
import { ChannelKeeper } from "./channel-keeper.ts";
import type { ConfirmedChannel } from "./confirmed-channel.ts";
import { RabbitmqBatch } from "./rabbitmq-batch.ts";
import { requireConnection, type RabbitmqConnection } from "./rabbitmq-client.ts";
import { sealForRabbitmq, type SealedForRabbitmq } from "./rabbitmq-envelope.ts";
import { KnownExchanges } from "./rabbitmq-exchanges.ts";
import { RabbitmqLink } from "./rabbitmq-link.ts";
import { routeByStream, routeOf, type RabbitmqRoute } from "./rabbitmq-route.ts";
import { RabbitmqRoutes, requireUnroutable, type Unroutable } from "./rabbitmq-routes.ts";

export interface RabbitmqPublisherOptions {
  /** `await connect(url, { recovery: true })` of amqplib; yours to close. */
  connection: RabbitmqConnection;
  /** Where a message goes. Default: the exchange of its stream, with its type as the routing key, "_" as ".". */
  route?: (message: Message) => RabbitmqRoute;
  /** Default "native". */
  envelope?: EnvelopeFormat;
  /** `source` of CloudEvents. Default: the stream. */
  source?: string;
  /** Creates the exchanges that messages go to, as durable topic exchanges. Default false. */
  declare?: boolean;
  /**
   * What becomes of a message that no queue takes, though its exchange is there: RabbitMQ says the same whether the node of
   * the queue is down or nobody has bound one. "wait": the route is out until a queue is there. "reject": a dead letter at
   * once, unless the route has worked since the publisher was created. Default "wait".
   */
  unroutable?: Unroutable;
  /** Without a single confirm for this long, the broker counts as out. Default 30 s. */
  confirmTimeoutMs?: number;
  clock?: Clock;
}

/** How long `close` waits for confirms. */
const CLOSE_MS = 3000;

/**
 * Publishes with confirms: persistent, and `mandatory`, so that a message that no queue takes waits or is rejected, and is
 * never lost. A route that is out, or whose queue is full, holds up its own messages only.
 * Different keys go out together, the messages of a key one after another.
 */
export function createRabbitmqPublisher(options: RabbitmqPublisherOptions): Publisher {
  checkOptions(options);
  return new RabbitmqPublisher(options);
}

class RabbitmqPublisher implements Publisher {
  readonly keepsKeyOrder = true;
  readonly #link: RabbitmqLink;
  readonly #clock: Clock;
  readonly #channels: ChannelKeeper;
  readonly #exchanges: KnownExchanges;
  readonly #known: RabbitmqRoutes;
  readonly #confirmTimeoutMs: number;
  readonly #route: (message: Message) => RabbitmqRoute;
  readonly #ahead: SealedAhead<SealedForRabbitmq>;
  readonly #batches = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();

  constructor(options: RabbitmqPublisherOptions) {
    const { connection, route = routeByStream, envelope = "native", source, declare = false } = options;
    const { unroutable = "wait", confirmTimeoutMs = 30_000 } = options;
    this.#link = RabbitmqLink.of(connection);
    this.#clock = options.clock ?? systemClock;
    this.#channels = new ChannelKeeper(this.#link, this.#clock);
    this.#exchanges = new KnownExchanges(this.#link, declare, this.#clock);
    this.#known = new RabbitmqRoutes({ link: this.#link, clock: this.#clock, unroutable, confirmTimeoutMs });
    this.#confirmTimeoutMs = confirmTimeoutMs;
    this.#route = route;
    this.#ahead = new SealedAhead((message) => sealForRabbitmq(message, envelope, source));
  }

  prepare(messages: readonly Message[]): void {
    this.#ahead.prepare(messages);
  }

  async publish(
    messages: readonly Message[],
    signal: AbortSignal,
    progress?: PublishProgress,
  ): Promise<readonly PublishResult[]> {
    if (messages.length === 0) return [];
    const begin = AbortSignal.any([signal, this.#closing.signal]);
    const publishing = this.#publish(messages, begin, signal, progress);
    this.#batches.add(publishing);
    try {
      return await publishing;
    } finally {
      this.#batches.delete(publishing);
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#batches);
    await this.#channels.close();
  }

  async #publish(
    messages: readonly Message[],
    begin: AbortSignal,
    signal: AbortSignal,
    progress: PublishProgress | undefined,
  ): Promise<readonly PublishResult[]> {
    if (begin.aborted) throw new UnavailableError(signal.aborted ? "The lease is lost" : "The publisher is closed");
    this.#link.requireUnblocked();
    const own: ConfirmedChannel[] = [];
    const channel = await this.#channelFor(progress?.kind, own, begin);
    try {
      return await this.#publishOn(channel, own, messages, begin, signal, progress);
    } finally {
      await Promise.all(own.map((one) => one.close()));
    }
  }

  async #publishOn(
    channel: ConfirmedChannel,
    own: ConfirmedChannel[],
    messages: readonly Message[],
    begin: AbortSignal,
    signal: AbortSignal,
    progress: PublishProgress | undefined,
  ): Promise<readonly PublishResult[]> {
    const routes = await this.#exchanges.check(
      messages.map((message) => routeOf(this.#route, message)),
      begin,
    );
    if (begin.aborted) throw new UnavailableError("The lease is lost, or the publisher is closed");
    const batch = new RabbitmqBatch(channel, {
      messages,
      routes,
      sealed: this.#ahead.of(messages),
      known: this.#known,
      kind: progress?.kind,
      onResult: progress?.onResult.bind(progress),
      signal: begin,
      whyLost: () => this.#link.error,
      reopen: async () => {
        this.#exchanges.forget();
        const another = await this.#channels.afterEnded(begin);
        own.push(another);
        return another;
      },
    });
    const stopWatching = this.#watch(batch, channel, signal);
    try {
      const running = batch.run();
      setImmediate(() => this.#ahead.whileWaiting());
      return await running;
    } finally {
      stopWatching();
    }
  }

  /** Ends a batch when the lease is lost, when the publisher is closed, or when no confirms come. */
  #watch(batch: RabbitmqBatch, channel: ConfirmedChannel, signal: AbortSignal): () => void {
    const over = new AbortController();
    const leave = (): void => batch.giveUp(new UnavailableError("The lease is lost"));
    const close = (): void => {
      batch.sendNoMore();
      void this.#clock
        .sleep(CLOSE_MS, over.signal)
        .then(() => batch.giveUp(new UnavailableError("The publisher is closed")));
    };
    signal.addEventListener("abort", leave);
    this.#closing.signal.addEventListener("abort", close);
    void this.#endSilence(batch, channel, over.signal);
    return () => {
      over.abort();
      signal.removeEventListener("abort", leave);
      this.#closing.signal.removeEventListener("abort", close);
    };
  }

  /** What is not confirmed for too long is given up: with its routes if the server answers, else with the whole batch. */
  async #endSilence(batch: RabbitmqBatch, channel: ConfirmedChannel, over: AbortSignal): Promise<void> {
    for (let heard = -1; !over.aborted;) {
      if (heard !== batch.confirms) {
        heard = batch.confirms;
        await this.#clock.sleep(this.#confirmTimeoutMs, over);
        continue;
      }
      const answers = await this.#link.answers(this.#clock, over);
      if (over.aborted || heard !== batch.confirms) continue;
      // What it still sends would be taken for an answer to later messages.
      this.#channels.drop(channel);
      if (answers) batch.skipSilent();
      else batch.giveUp(new UnavailableError(`RabbitMQ confirmed nothing for ${this.#confirmTimeoutMs} ms`));
      heard = -1;
    }
  }

  /** What is sent again may get the channel closed, or no answer: that must not touch what is sent for the first time. */
  async #channelFor(
    kind: ClaimKind | undefined,
    own: ConfirmedChannel[],
    begin: AbortSignal,
  ): Promise<ConfirmedChannel> {
    if (kind !== "retry") return this.#channels.get(begin, () => this.#exchanges.forget());
    const channel = await this.#channels.another(begin);
    own.push(channel);
    return channel;
  }
}

const OPTIONS: readonly (keyof RabbitmqPublisherOptions)[] = [
  "connection",
  "route",
  "envelope",
  "source",
  "declare",
  "unroutable",
  "confirmTimeoutMs",
  "clock",
];

function checkOptions(options: RabbitmqPublisherOptions): void {
  const of = "createRabbitmqPublisher";
  requireConnection(of, options?.connection);
  rejectUnknownOptions(of, options, OPTIONS);
  const { route = routeByStream, envelope = "native", confirmTimeoutMs = 1, unroutable = "wait" } = options;
  requireInteger(of, "confirmTimeoutMs", confirmTimeoutMs, 1, 2 ** 31 - 1);
  requireFunction(of, "route", route, "Pass (message) => ({ exchange, routingKey })");
  requireEnvelope(of, envelope);
  requireUnroutable(of, unroutable);
}
