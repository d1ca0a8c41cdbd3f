import type { Clock } from "../../core/contracts.ts";
import { PermanentError } from "../../core/errors.ts";
import { exchangeOut, missingExchange, replyCode, topologyError } from "./rabbitmq-errors.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";
import type { RabbitmqRoute } from "./rabbitmq-route.ts";

const MAX_EXCHANGES = 10_000;

/**
 * The exchanges that are there. Publishing to one that is missing would close the channel, and take the confirms of
 * other messages with it: so each is looked for, or created, before its first message.
 */
export class KnownExchanges {
  readonly #link: RabbitmqLink;
  readonly #declare: boolean;
  readonly #clock: Clock;
  /** The default exchange is always there. */
  #known = new Set<string>([""]);
  /** Exchanges that were there at some time: if one is missing now, its messages wait. */
  readonly #met = new Set<string>();

  constructor(link: RabbitmqLink, declare: boolean, clock: Clock) {
    this.#link = link;
    this.#declare = declare;
    this.#clock = clock;
  }

  forget(): void {
    this.#known = new Set([""]);
  }

  /** The routes, with an error in place of those that lead to an exchange that is missing or refused. */
  async check(routes: (RabbitmqRoute | Error)[], signal: AbortSignal): Promise<readonly (RabbitmqRoute | Error)[]> {
    const unknown = new Set<string>();
    for (const route of routes) {
      if (!(route instanceof Error) && !this.#known.has(route.exchange)) unknown.add(route.exchange);
    }
    if (unknown.size === 0) return routes;
    const errors = new Map<string, Error>();
    for (const exchange of unknown) {
      const error = await this.#look(exchange, signal);
      if (error === undefined) this.#found(exchange);
      else errors.set(exchange, error);
    }
    return routes.map((route) => (route instanceof Error ? route : (errors.get(route.exchange) ?? route)));
  }

  #found(exchange: string): void {
    this.#known.add(exchange);
    if (this.#met.size < MAX_EXCHANGES) this.#met.add(exchange);
  }

  async #look(exchange: string, signal: AbortSignal): Promise<Error | undefined> {
    try {
      await this.#link.briefly(this.#clock, signal, (channel) =>
        this.#declare && !exchange.startsWith("amq.")
          ? channel.assertExchange(exchange, "topic", { durable: true })
          : channel.checkExchange(exchange),
      );
      return undefined;
    } catch (error) {
      const found = topologyError(error, `the exchange "${exchange}"`, () => this.#missing(exchange, error));
      // The server has said nothing about this exchange: it is out as a whole.
      if (replyCode(error) === undefined) throw found;
      // Else a setting or a right is wrong, which no message can help.
      return found instanceof PermanentError ? found : exchangeOut(exchange, found.message, error);
    }
  }

  /** Missing from the start, or deleted since it was seen: then it may come back. */
  #missing(exchange: string, cause: unknown): Error {
    const fix = this.#declare ? "Create it" : "Create it, or set declare: true on the publisher";
    if (!this.#met.has(exchange)) return missingExchange(exchange, fix, cause);
    return new Error(`The exchange "${exchange}" was deleted. ${fix}`);
  }
}
