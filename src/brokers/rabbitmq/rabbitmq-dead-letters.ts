import { answerWithin } from "../../adapter/index.ts";
import type { Clock } from "../../core/contracts.ts";
import { describeError, TxboxError, UnavailableError } from "../../core/errors.ts";
import { deadHeaders, type DeadHeaders } from "../../core/dead-letter.ts";
import { ChannelKeeper } from "./channel-keeper.ts";
import type { Confirm, ConfirmedChannel } from "./confirmed-channel.ts";
import type { RabbitmqMessage, RabbitmqPublish } from "./rabbitmq-client.ts";
import { propertiesOf } from "./rabbitmq-envelope.ts";
import type { RabbitmqLink } from "./rabbitmq-link.ts";
import type { Topology } from "./rabbitmq-topology.ts";

const CONFIRM_TIMEOUT_MS = 30_000;

/** Puts messages aside: their bytes and headers as they came, and why. Done when the server has confirmed it. */
export class RabbitmqDeadLetters {
  readonly #channels: ChannelKeeper;
  readonly #clock: Clock;
  readonly #target: Topology["deadLetter"];
  readonly #declares: boolean;

  constructor(link: RabbitmqLink, clock: Clock, { deadLetter, declaration }: Topology) {
    this.#channels = new ChannelKeeper(link, clock);
    this.#clock = clock;
    this.#target = deadLetter;
    this.#declares = declaration !== undefined;
  }

  async put(
    message: RabbitmqMessage,
    by: string,
    error: unknown,
    attempts: number,
    signal: AbortSignal,
  ): Promise<void> {
    const channel = await this.#channels.get(signal);
    try {
      await this.#putOn(channel, message, deadHeaders(by, error, attempts));
    } finally {
      this.#channels.release(channel);
    }
  }

  close(): Promise<void> {
    return this.#channels.close();
  }

  async #putOn(channel: ConfirmedChannel, message: RabbitmqMessage, why: DeadHeaders): Promise<void> {
    const { exchange, routingKey = message.fields.routingKey } = this.#target;
    // The server obeys CC in every message: a copy would go where it names, and count as put aside.
    const { "x-delivery-count": _, CC: copies, BCC: __, ...headers } = message.properties.headers ?? {};
    const dead = {
      ...why,
      "dead-exchange": message.fields.exchange,
      "dead-routing-key": message.fields.routingKey,
      ...(copies === undefined ? {} : { "dead-cc": copies }),
    };
    const options = { ...propertiesOf(message), persistent: true, mandatory: true };
    const send = (all: Record<string, unknown>): Promise<Confirm> =>
      this.#confirmed(channel, exchange, routingKey, message.content, { ...options, headers: all });
    let confirm: Confirm;
    try {
      confirm = await send({ ...headers, ...dead });
    } catch (failure) {
      if (channel.ended || failure instanceof UnavailableError) throw failure;
      // With ours the headers no longer fit into a frame.
      confirm = await send(dead);
    }
    if (confirm !== "taken") throw this.#notPutAside(exchange, routingKey, confirm, channel.error);
  }

  async #confirmed(
    channel: ConfirmedChannel,
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: RabbitmqPublish,
  ): Promise<Confirm> {
    const { promise, resolve } = Promise.withResolvers<Confirm>();
    channel.send(exchange, routingKey, content, options, resolve);
    const late = `RabbitMQ confirmed no dead letter for ${CONFIRM_TIMEOUT_MS} ms`;
    try {
      return await answerWithin(promise, CONFIRM_TIMEOUT_MS, late, undefined, this.#clock);
    } catch (error) {
      this.#channels.drop(channel);
      throw error;
    }
  }

  #notPutAside(exchange: string, routingKey: string, confirm: Confirm, error: unknown): Error {
    if (confirm === "lost") {
      const why = error === undefined ? "the connection was lost" : describeError(error);
      return new UnavailableError(`A dead letter was not confirmed: ${why}`, { cause: error });
    }
    const where = exchange === "" ? `the queue "${routingKey}"` : `the exchange "${exchange}" (${routingKey})`;
    const unroutable = confirm === "unroutable";
    const create = this.#declares
      ? "Create a queue for dead letters there; the subscriber declares it only when it connects"
      : "Create a queue for dead letters there, or set declare: true on the subscriber";
    const fix = unroutable ? `${create}. If its node is down, bring that back` : "Make room in its queue";
    return new TxboxError("not_found", `${where} ${unroutable ? "leads nowhere" : "refused a dead letter"}`, {
      field: "deadLetter",
      fix,
      retryable: true,
    });
  }
}
