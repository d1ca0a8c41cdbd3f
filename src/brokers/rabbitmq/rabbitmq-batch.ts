import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, UnavailableError, describeError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { failureOf } from "../../core/publish-each.ts";
import type { ConfirmedChannel, Confirm } from "./confirmed-channel.ts";
import { KeyChains } from "./key-chains.ts";
import type { SealedForRabbitmq } from "./rabbitmq-envelope.ts";
import { refusalOf, unavailable, unroutable } from "./rabbitmq-errors.ts";
import type { RabbitmqRoute } from "./rabbitmq-route.ts";

/** Larger ones go alone: should the server close the channel for the size, no neighbour has to be sent twice. */
const LARGE_BYTES = 1024 * 1024;
const PUBLISHED: PublishResult = { status: "published" };
const NOT_TRIED: PublishResult = { status: "unavailable" };

export interface BatchOptions {
  readonly messages: readonly Message[];
  /** By message; an error in place of a route is the message's result. */
  readonly routes: readonly (RabbitmqRoute | Error)[];
  /** By its place; may throw. */
  readonly sealed: (index: number) => SealedForRabbitmq;
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
  readonly #options: BatchOptions;
  readonly #results: PublishResult[];
  readonly #chains: KeyChains;
  readonly #done = Promise.withResolvers<readonly PublishResult[]>();
  #channel: ConfirmedChannel;
  #large: number[] = [];
  #lost: number[] = [];
  #inFlight = new Set<number>();
  #alone = false;
  #limit: number;
  #over = false;
  #confirms = 0;

  constructor(channel: ConfirmedChannel, options: BatchOptions) {
    this.#channel = channel;
    this.#options = options;
    this.#results = options.messages.map(() => NOT_TRIED);
    this.#chains = new KeyChains(options.messages);
    this.#limit = this.#chains.window;
  }

  /** Rises with every confirm: who waits can see whether the server answers. */
  get confirms(): number {
    return this.#confirms;
  }

  run(): Promise<readonly PublishResult[]> {
    this.#pump();
    return this.#done.promise;
  }

  /** Ends when what is under way is confirmed. */
  sendNoMore(): void {
    this.#limit = 0;
    this.#pump();
  }

  /** Ends now; nothing is known of what is under way. */
  giveUp(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    for (const i of [...this.#inFlight, ...this.#lost]) this.#results[i] = { status: "unavailable", error };
    const first = this.#results.indexOf(NOT_TRIED);
    if (first !== -1) this.#results[first] = { status: "unavailable", error };
    this.#done.resolve(this.#results);
  }

  #pump(): void {
    while (!this.#over && !this.#alone && this.#inFlight.size < this.#limit && !this.#channel.ended) {
      const i = this.#take();
      if (i === undefined) break;
      this.#send(i);
    }
    if (!this.#over && this.#inFlight.size === 0) this.#landed();
  }

  #take(): number | undefined {
    return this.#chains.take() ?? (this.#inFlight.size === 0 ? this.#large.shift() : undefined);
  }

  #send(i: number): void {
    const { routes, sealed } = this.#options;
    const route = routes[i]!;
    if (route instanceof Error) {
      this.#settle(i, failureOf(route));
      return;
    }
    const { exchange, routingKey } = route;
    try {
      const { content, options } = sealed(i);
      if (content.length >= LARGE_BYTES) {
        if (this.#inFlight.size > 0) return void this.#large.push(i);
        this.#alone = true;
      }
      this.#inFlight.add(i);
      this.#channel.send(exchange, routingKey, content, options, (confirm) => this.#heard(i, confirm));
    } catch (error) {
      this.#inFlight.delete(i);
      // Nothing of it has been sent.
      if (this.#channel.ended) this.#chains.add(i);
      else this.#settle(i, { status: "rejected", error: notEncoded(error) });
    }
  }

  #heard(i: number, confirm: Confirm): void {
    if (this.#over) return;
    this.#confirms++;
    this.#inFlight.delete(i);
    const { exchange, routingKey } = this.#options.routes[i] as RabbitmqRoute;
    switch (confirm) {
      case "taken":
        this.#settle(i, PUBLISHED);
        break;
      case "unroutable":
        this.#settle(i, { status: "rejected", error: unroutable(exchange, routingKey) });
        break;
      case "refused":
        this.#settle(i, {
          status: "failed",
          error: new Error(`A queue of exchange "${exchange}" refused the message`),
        });
        break;
      case "lost":
        this.#lost.push(i);
        break;
    }
    if (this.#inFlight.size === 0) this.#alone = false;
    this.#pump();
  }

  #settle(i: number, result: PublishResult): void {
    this.#results[i] = result;
    if (result.status === "published") this.#chains.follow(i);
    if (this.#inFlight.size === 0) this.#alone = false;
  }

  /** Nothing is under way: all is sent, or the channel has ended. */
  #landed(): void {
    const left = this.#lost.length > 0 || this.#large.length > 0 || this.#chains.size > 0;
    if (!left || this.#limit === 0) {
      this.#over = true;
      this.#done.resolve(this.#results);
    } else if (this.#channel.error === undefined) {
      this.giveUp(unavailable(this.#options.whyLost()));
    } else {
      this.#findCulprit(this.#channel.error, this.#channel.lost);
      this.#goOn();
    }
  }

  /** One of those that were under way made the server close the channel: fewer at a time, until it is found. */
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
