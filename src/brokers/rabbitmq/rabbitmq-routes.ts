import type { ClaimKind, Clock, PublishResult } from "../../core/contracts.ts";
import { PermanentError, TxboxError, UnavailableError } from "../../core/errors.ts";
import { isMissing } from "./rabbitmq-errors.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";
import { routeName, type RabbitmqRoute } from "./rabbitmq-route.ts";

/** What becomes of a message that no queue takes, when the server does not say why. */
export type Unroutable = "wait" | "reject";

const MAX_ROUTES = 10_000;
const MAX_SUSPECTS = 1000;
/** So often in a row a message alone is refused, until that counts against the message. */
const PATIENCE = 5;

/** A route that has taken messages. */
interface Seen {
  taken: number;
  /** Bytes of the largest of them. */
  largest: number;
  /** How often it refused a message that was no larger: because it was full, then. */
  full: number;
}

const NOTHING: Readonly<Seen> = { taken: 0, largest: 0, full: 0 };

/** A message that was refused and is larger than all that its route has taken. */
interface Suspect {
  /** What its route had taken by then, and how often it had been full. */
  taken: number;
  full: number;
  /** How often in a row it was refused though its route was not full. */
  alone: number;
}

export interface RoutesOptions {
  readonly link: RabbitmqLink;
  readonly clock: Clock;
  readonly unroutable: Unroutable;
  readonly timeoutMs: number;
}

/**
 * What is known of the routes, from what they have taken so far: whether a route that takes a message no longer is out,
 * never was there, or refuses just this one. Forgets the oldest of many, which makes it patient again.
 */
export class RabbitmqRoutes {
  readonly #options: RoutesOptions;
  readonly #seen = new Map<string, Seen>();
  /** By message id. */
  readonly #suspects = new Map<string, Suspect>();
  /** Routes of which a message was not confirmed in time; when the next one may try. */
  readonly #silent = new Map<string, number>();
  #last: { readonly route: RabbitmqRoute; readonly seen: Seen } | undefined;

  constructor(options: RoutesOptions) {
    this.#options = options;
  }

  /** Every queue of the route has taken a message of so many bytes. */
  took(route: RabbitmqRoute, bytes: number): void {
    // Most messages go where the one before went.
    if (this.#last?.route !== route) this.#last = { route, seen: this.#of(route) };
    const { seen } = this.#last;
    if (this.#silent.size > 0) this.#silent.delete(nameOf(route));
    seen.taken++;
    if (bytes > seen.largest) seen.largest = bytes;
  }

  /** The server is there and confirms other messages, not those of this route: its queue has no leader, or hangs. */
  fellSilent(route: RabbitmqRoute): PublishResult {
    const { clock, timeoutMs } = this.#options;
    remember(this.#silent, nameOf(route), clock.monotonic() + timeoutMs, MAX_ROUTES);
    return this.#silence(route);
  }

  /**
   * The result of a message that had better not be sent: to wait for confirms of a route that gives none would hold up all
   * others of the batch. One message at a time tries, of those that are sent again anyway.
   */
  notNow(route: RabbitmqRoute, kind: ClaimKind | undefined): PublishResult | undefined {
    if (this.#silent.size === 0) return undefined;
    const name = nameOf(route);
    const triesAt = this.#silent.get(name);
    if (triesAt === undefined) return undefined;
    const { clock, timeoutMs } = this.#options;
    const now = clock.monotonic();
    if (kind === "new" || now < triesAt) return this.#silence(route);
    this.#silent.set(name, now + timeoutMs);
    return undefined;
  }

  #silence(route: RabbitmqRoute): PublishResult {
    const what = `RabbitMQ confirmed nothing for ${this.#options.timeoutMs} ms, though it answers`;
    return out(route, what, "See whether its queue has a leader, and bring back its nodes");
  }

  /** No queue took a message. */
  async unroutable(route: RabbitmqRoute, signal: AbortSignal): Promise<PublishResult> {
    this.#silent.delete(nameOf(route));
    if (this.#seen.has(nameOf(route))) {
      return out(route, "No queue takes messages any more", "Bring back its node, or bind a queue to it again");
    }
    const { exchange, routingKey } = route;
    if (exchange === "") {
      // The name of the queue is known, so the server can tell whether it is away or does not exist.
      const found = await this.#find(routingKey, signal);
      if (found !== "missing") return out(route, "The queue is away", "Bring back the node that it lives on");
      return { status: "rejected", error: noQueue(route) };
    }
    if (this.#options.unroutable === "reject") return { status: "rejected", error: noQueue(route) };
    const fix = 'Bind a queue to it, or bring back the node that its queue lives on; or set unroutable: "reject"';
    return out(route, "No queue takes messages", fix);
  }

  /** A queue of the route refused a message of so many bytes: it is full, or it is about to go away with its node. */
  async refused(route: RabbitmqRoute, id: string, bytes: number, signal: AbortSignal): Promise<PublishResult> {
    this.#silent.delete(nameOf(route));
    const refusal = out(route, "A queue refuses messages", "Make room in it: let its consumers catch up");
    const { taken, largest, full } = this.#seen.get(nameOf(route)) ?? NOTHING;
    if (bytes <= largest) {
      this.#of(route).full++;
      this.#suspects.delete(id);
      return refusal;
    }
    const suspect = this.#suspects.get(id) ?? { taken, full, alone: 0 };
    remember(this.#suspects, id, suspect, MAX_SUSPECTS);
    const [othersPassed, wasFull] = [taken > suspect.taken, full > suspect.full];
    Object.assign(suspect, { taken, full });
    if (wasFull) suspect.alone = 0;
    else if (othersPassed || (await this.#isEmpty(route, signal))) suspect.alone++;
    else return refusal;
    return suspect.alone < PATIENCE ? refusal : { status: "failed", error: tooLarge(route, bytes) };
  }

  async #isEmpty({ exchange, routingKey }: RabbitmqRoute, signal: AbortSignal): Promise<boolean> {
    return exchange === "" && (await this.#find(routingKey, signal)) === "empty";
  }

  #of(route: RabbitmqRoute): Seen {
    const name = nameOf(route);
    const known = this.#seen.get(name);
    if (known !== undefined) return known;
    const seen = { ...NOTHING };
    remember(this.#seen, name, seen, MAX_ROUTES);
    return seen;
  }

  async #find(queue: string, signal: AbortSignal): Promise<"missing" | "empty" | "other"> {
    const { link, clock } = this.#options;
    try {
      const { messageCount } = await link.briefly(clock, signal, (channel) => channel.checkQueue(queue));
      return messageCount === 0 ? "empty" : "other";
    } catch (error) {
      return isMissing(error) ? "missing" : "other";
    }
  }
}

/** The oldest entry makes room for a new one. */
function remember<V>(map: Map<string, V>, name: string, value: V, most: number): void {
  if (map.size >= most && !map.has(name)) map.delete(map.keys().next().value ?? "");
  map.set(name, value);
}

function nameOf({ exchange, routingKey }: RabbitmqRoute): string {
  return `${exchange}\0${routingKey}`;
}

function out(route: RabbitmqRoute, what: string, fix: string): PublishResult {
  const name = routeName(route);
  return {
    status: "unavailable",
    route: name,
    error: new UnavailableError(`${what}: ${describe(route)}`, { route: name, fix }),
  };
}

function noQueue(route: RabbitmqRoute): PermanentError {
  return new PermanentError(`No queue takes messages of ${describe(route)}`, {
    field: "routingKey",
    fix: "Create or bind one, then requeue the dead letter",
  });
}

function tooLarge(route: RabbitmqRoute, bytes: number): TxboxError {
  const message = `A queue refuses this message of ${bytes} bytes and takes smaller ones: ${describe(route)}`;
  return new TxboxError("payload_too_large", message, { fix: "Raise x-max-length-bytes of the queue, or send less" });
}

function describe({ exchange, routingKey }: RabbitmqRoute): string {
  return exchange === "" ? `queue "${routingKey}"` : `exchange "${exchange}" with the routing key "${routingKey}"`;
}
