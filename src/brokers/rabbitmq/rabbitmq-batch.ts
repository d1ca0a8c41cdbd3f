import { BatchResults, failureOf, type Batch } from "../../adapter/index.ts";
import { NOT_TRIED, PUBLISHED } from "../../core/batch-results.ts";
import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, UnavailableError, describeError } from "../../core/errors.ts";
import type { ConfirmedChannel, Confirm } from "./confirmed-channel.ts";
import { KeyChains } from "./key-chains.ts";
import type { EncodedForRabbitmq } from "./rabbitmq-envelope.ts";
import { refusalOf, unavailable } from "./rabbitmq-errors.ts";
import { routeName, type RabbitmqRoute } from "./rabbitmq-route.ts";
import type { RabbitmqRoutes } from "./rabbitmq-routes.ts";

/** Larger ones go alone: should the server close the channel for the size, no other message has to be sent twice. */
const LARGE_BYTES = 1024 * 1024;

export interface BatchOptions {
  /** By message; an error in place of a route is the message's result. */
  readonly routes: readonly (RabbitmqRoute | Error)[];
  /** By its place; may throw. */
  readonly encoded: (index: number) => EncodedForRabbitmq;
  /** What is known of the places they go to. */
  readonly known: RabbitmqRoutes;
  /** Why the connection is gone, when it is. */
  readonly whyLost: () => unknown;
  /** Another channel, for this batch only. */
  readonly reopen: () => Promise<ConfirmedChannel>;
}

/**
 * Sends a batch over one channel. Different keys go together; the next message of a key follows when the one before is
 * confirmed: a queue may refuse one message and take the next, so nothing else keeps the order of a key in every case.
 */
export class RabbitmqBatch {
  readonly #batch: Batch;
  readonly #options: BatchOptions;
  readonly #results: BatchResults;
  readonly #chains: KeyChains;
  readonly #done = Promise.withResolvers<readonly PublishResult[]>();
  #channel: ConfirmedChannel;
  #large: number[] = [];
  #lost: number[] = [];
  #inFlight = new Set<number>();
  /** Verdicts on messages that were not taken. */
  readonly #verdicts: Promise<void>[] = [];
  #alone = false;
  #limit: number;
  /** Nothing more is sent or heard. */
  #over = false;
  /** The results are out. */
  #finished = false;
  #confirms = 0;

  constructor(channel: ConfirmedChannel, batch: Batch, options: BatchOptions) {
    this.#channel = channel;
    this.#batch = batch;
    this.#options = options;
    this.#results = new BatchResults(batch.messages);
    this.#chains = new KeyChains(batch.messages);
    this.#limit = this.#chains.window;
  }

  /** Rises with every confirm: it shows a waiting caller whether the server answers. */
  get confirms(): number {
    return this.#confirms;
  }

  run(): Promise<readonly PublishResult[]> {
    this.#pump();
    return this.#done.promise;
  }

  /** What is under way is not confirmed, though the server answers: its routes are out, the rest goes on. */
  skipSilent(): void {
    if (this.#over || this.#inFlight.size === 0) return;
    const { known, routes } = this.#options;
    const silent = [...this.#inFlight];
    this.#inFlight.clear();
    for (const i of silent) this.#settle(i, known.fellSilent(routes[i] as RabbitmqRoute));
    this.#goOn();
  }

  /** Ends now; nothing is known of what is under way. */
  giveUp(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    const result: PublishResult = { status: "unavailable", error };
    for (const i of [...this.#inFlight, ...this.#lost]) this.#results.set(i, result);
    this.#finish(result);
  }

  #finish(notTried: PublishResult): void {
    this.#finished = true;
    this.#done.resolve(this.#results.all(notTried));
  }

  #pump(): void {
    while (this.#hasRoom && this.#hasNext) {
      // Asked before each message: it may be long since the last one.
      if (!this.#batch.mayBegin()) break;
      this.#send(this.#take());
    }
    if (!this.#over && this.#inFlight.size === 0) this.#landed();
  }

  get #hasRoom(): boolean {
    return !this.#over && !this.#alone && this.#inFlight.size < this.#limit && !this.#channel.ended;
  }

  get #hasNext(): boolean {
    return this.#chains.size > 0 || (this.#inFlight.size === 0 && this.#large.length > 0);
  }

  #take(): number {
    return this.#chains.take() ?? this.#large.shift()!;
  }

  #send(i: number): void {
    const { routes, encoded, known } = this.#options;
    const route = routes[i]!;
    if (route instanceof Error) {
      this.#settle(i, failureOf(route));
      return;
    }
    const notNow = known.notNow(route, this.#batch.kind);
    if (notNow !== undefined) {
      this.#settle(i, notNow);
      return;
    }
    const { exchange, routingKey } = route;
    try {
      const { content, options } = encoded(i);
      if (content.length >= LARGE_BYTES) {
        if (this.#inFlight.size > 0) return void this.#large.push(i);
        this.#alone = true;
      }
      this.#inFlight.add(i);
      this.#channel.send(exchange, routingKey, content, options, (confirm) => this.#heard(i, confirm, content.length));
    } catch (error) {
      this.#inFlight.delete(i);
      // Nothing of it has been sent.
      if (this.#channel.ended) this.#chains.add(i);
      else this.#settle(i, { status: "rejected", error: notEncoded(error) });
    }
  }

  #heard(i: number, confirm: Confirm, bytes: number): void {
    // It may come after all when it is no longer waited for.
    if (this.#over || !this.#inFlight.delete(i)) return;
    this.#confirms++;
    const route = this.#options.routes[i] as RabbitmqRoute;
    const { known } = this.#options;
    const { messages, signal } = this.#batch;
    switch (confirm) {
      case "taken":
        known.took(route, bytes);
        this.#settle(i, PUBLISHED);
        break;
      case "unroutable":
        this.#judge(i, route, known.unroutable(route, signal));
        break;
      case "refused":
        this.#judge(i, route, known.refused(route, messages[i]!.id, bytes, signal));
        break;
      case "lost":
        this.#lost.push(i);
        break;
    }
    if (this.#inFlight.size === 0) this.#alone = false;
    this.#pump();
  }

  /** The message was not taken, so its key waits in any case; the server may have to be asked why. */
  #judge(i: number, route: RabbitmqRoute, verdict: Promise<PublishResult>): void {
    this.#results.set(i, { status: "unavailable", route: routeName(route) });
    this.#verdicts.push(verdict.then((result) => void (this.#finished || this.#settle(i, result))));
  }

  #settle(i: number, result: PublishResult): void {
    this.#results.set(i, result);
    this.#batch.onResult?.(i, result);
    if (result.status === "published") this.#chains.follow(i);
    if (this.#inFlight.size === 0) this.#alone = false;
  }

  /** Nothing is under way: all is sent, or the channel has ended. */
  #landed(): void {
    const left = this.#lost.length > 0 || this.#large.length > 0 || this.#chains.size > 0;
    if (!left || !this.#batch.mayBegin()) {
      this.#over = true;
      void Promise.all(this.#verdicts).then(() => this.#finish(NOT_TRIED));
    } else if (this.#channel.error === undefined) {
      this.giveUp(unavailable(this.#options.whyLost()));
    } else {
      this.#findCulprit(this.#channel.error, this.#channel.lost);
      this.#goOn();
    }
  }

  /** One of the messages under way made the server close the channel: fewer at a time, until it is found. */
  #findCulprit(error: unknown, lostByAll: number): void {
    const suspects = this.#lost.sort((a, b) => a - b);
    this.#lost = [];
    const [first] = suspects;
    if (first !== undefined && lostByAll === 1) {
      const { exchange } = this.#options.routes[first] as RabbitmqRoute;
      this.#settle(first, failureOf(refusalOf(error, exchange)));
      this.#limit = this.#chains.window;
      return;
    }
    for (const i of suspects) this.#chains.add(i);
    if (suspects.length > 0) this.#limit = Math.max(1, Math.floor(suspects.length / 10));
  }

  #goOn(): void {
    this.#options.reopen().then(
      (channel) => {
        this.#channel = channel;
        this.#alone = false;
        this.#pump();
      },
      (error: unknown) => this.giveUp(error),
    );
  }
}

function notEncoded(error: unknown): Error {
  if (error instanceof UnavailableError || error instanceof PermanentError) return error;
  return new PermanentError(`This message does not fit into AMQP: ${describeError(error)}`, { cause: error });
}
