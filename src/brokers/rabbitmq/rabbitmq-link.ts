import { ABORTED, LATE, settledWithin } from "../../adapter/index.ts";
import type { Clock } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import { endChannel } from "./end-channel.ts";
import type { RabbitmqChannel, RabbitmqConnection } from "./rabbitmq-client.ts";
import { notAsked, refusedConnection, replyCode, unavailable } from "./rabbitmq-errors.ts";

/** How long a channel is waited for; the caller has a backoff of its own. */
const OPEN_TIMEOUT_MS = 3000;

/** What is known of a connection: whether it is there, why not, and whether the server lets it publish. */
export class RabbitmqLink {
  static readonly #links = new WeakMap<RabbitmqConnection, RabbitmqLink>();
  readonly connection: RabbitmqConnection;
  readonly #waiting = new Set<(error: unknown) => void>();
  #error: unknown;
  #blocked: string | undefined;
  /** Ends when the connection is there again. */
  #down: PromiseWithResolvers<void> | undefined;

  /** One per connection, however many publishers and subscribers share it. */
  static of(connection: RabbitmqConnection): RabbitmqLink {
    const known = RabbitmqLink.#links.get(connection);
    if (known !== undefined) return known;
    const link = new RabbitmqLink(connection);
    RabbitmqLink.#links.set(connection, link);
    return link;
  }

  private constructor(connection: RabbitmqConnection) {
    this.connection = connection;
    const failed = (error: unknown): void => {
      this.#error = error;
      this.#blocked = undefined;
    };
    // Without a listener for errors of its connection a process ends.
    connection.on("error", failed);
    connection.on("disconnect", (error: unknown) => {
      failed(error);
      this.#down ??= Promise.withResolvers();
    });
    for (const event of ["connect-failed", "reconnect-failed"]) {
      connection.on(event, (error: unknown) => {
        failed(error);
        for (const tell of this.#waiting) tell(error);
      });
    }
    connection.on("connect", () => {
      this.#error = undefined;
      this.#down?.resolve();
      this.#down = undefined;
    });
    connection.on("blocked", (reason: unknown) => (this.#blocked = String(reason)));
    connection.on("unblocked", () => (this.#blocked = undefined));
  }

  /** Why the connection was lost last; undefined while it is there. */
  get error(): unknown {
    return this.#error;
  }

  /** The server reads nothing while it lacks memory or disk: what is sent now would only pile up here. */
  requireUnblocked(): void {
    if (this.#blocked === undefined) return;
    throw new UnavailableError(`RabbitMQ blocks publishers: ${this.#blocked}`, {
      fix: "Give the server memory or disk, or let consumers catch up",
    });
  }

  /** Waits so long, or until a connection that is lost has come back: then true. */
  async rest(ms: number, clock: Clock, signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const sleep = clock.sleep(ms, AbortSignal.any([signal, over.signal])).then(() => false);
    const back = this.#down?.promise.then(() => true);
    try {
      return await Promise.race(back === undefined ? [sleep] : [sleep, back]);
    } finally {
      over.abort();
    }
  }

  /** A channel, as soon as there is a connection; rejects when that fails, the signal aborts, or it takes too long. */
  async open<C extends RabbitmqChannel>(create: () => Promise<C>, clock: Clock, signal: AbortSignal): Promise<C> {
    // When a channel ends with its connection, the connection learns of it a moment later.
    await Promise.resolve();
    const endsAt = clock.monotonic() + OPEN_TIMEOUT_MS;
    if (this.#down !== undefined) await this.#within(endsAt, this.#down.promise, clock, signal);
    const opening = create();
    try {
      return await this.#within(endsAt, opening, clock, signal);
    } catch (error) {
      opening.then(endChannel, () => undefined);
      throw error;
    }
  }

  /** Whether the server says anything at all, and lets this connection publish. */
  async answers(clock: Clock, signal: AbortSignal): Promise<boolean> {
    if (this.#blocked !== undefined) return false;
    try {
      void endChannel(await this.open(() => this.connection.createChannel(), clock, signal));
      return this.#blocked === undefined;
    } catch {
      return false;
    }
  }

  /** A channel for a few questions, closed afterwards; an error of the server closes it by itself. */
  async briefly<T>(clock: Clock, signal: AbortSignal, ask: (channel: RabbitmqChannel) => Promise<T>): Promise<T> {
    const channel = await this.open(() => this.connection.createChannel(), clock, signal);
    channel.on("error", () => undefined);
    try {
      return await this.answered(ask(channel), clock, signal);
    } finally {
      void endChannel(channel);
    }
  }

  /** What the server answered, even if it is an error; or that it has not, because it is out. */
  async answered<T>(asking: Promise<T>, clock: Clock, signal: AbortSignal): Promise<T> {
    const answer = asking.then(
      (value) => ({ value }),
      (error: unknown) => ({ error: error instanceof Error ? error : new Error(String(error)) }),
    );
    const got = await this.#within(clock.monotonic() + OPEN_TIMEOUT_MS, answer, clock, signal);
    if ("value" in got) return got.value;
    throw replyCode(got.error) === undefined ? notAsked(got.error) : got.error;
  }

  async #within<T>(endsAt: number, promise: Promise<T>, clock: Clock, signal: AbortSignal): Promise<T> {
    const failure = Promise.withResolvers<never>();
    const waitMs = Math.max(0, endsAt - clock.monotonic());
    this.#waiting.add(failure.reject);
    try {
      const got = await settledWithin(Promise.race([promise, failure.promise]), waitMs, signal, clock);
      if (got === ABORTED) throw new Error("the wait was called off");
      if (got === LATE) throw new Error("no channel was opened in time");
      return got;
    } catch (error) {
      const cause = this.#error ?? error;
      throw refusedConnection(cause) ?? unavailable(cause);
    } finally {
      this.#waiting.delete(failure.reject);
    }
  }
}
