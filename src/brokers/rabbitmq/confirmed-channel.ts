import { endChannel } from "./end-channel.ts";
import { GatheredWrites } from "./gathered-writes.ts";
import { ReusedHeaders } from "./reused-headers.ts";
import type { RabbitmqConfirmChannel, RabbitmqMessage, RabbitmqPublish } from "./rabbitmq-client.ts";

/**
 * What the server said of a message: taken by every queue, taken by none because none wants it, refused by a queue;
 * or nothing, because the channel ended before.
 */
export type Confirm = "taken" | "unroutable" | "refused" | "lost";

/** A channel that tells for each message what became of it. */
export class ConfirmedChannel {
  readonly #channel: RabbitmqConfirmChannel;
  readonly #writes: GatheredWrites;
  readonly #headers = new ReusedHeaders();
  /** Came back, and not confirmed yet: the server sends a message back before it confirms it. */
  readonly #returned = new Map<string, number>();
  #underWay = 0;
  #refused = false;
  #error: unknown;
  #ended: { readonly underWay: number } | undefined;

  constructor(channel: RabbitmqConfirmChannel) {
    this.#channel = channel;
    this.#writes = new GatheredWrites(channel);
    channel.on("error", (error: unknown) => (this.#error = error));
    // Ahead of amqplib's own listener, which fails what is not confirmed: that must not look refused.
    channel.prependListener("close", () => (this.#ended = { underWay: this.#underWay }));
    channel.on("return", ({ fields, properties }: RabbitmqMessage) => {
      const name = nameOf(fields.exchange, fields.routingKey, properties.messageId);
      this.#returned.set(name, (this.#returned.get(name) ?? 0) + 1);
    });
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  /** What the server closed the channel with; undefined when it ended with its connection. */
  get error(): unknown {
    return this.#error;
  }

  /** A queue has refused a message. */
  get refused(): boolean {
    return this.#refused;
  }

  /** How many messages were not confirmed when it ended. The server ends a channel at the message it objects to. */
  get lost(): number {
    return this.#ended?.underWay ?? 0;
  }

  /** Throws what cannot be encoded; nothing has been sent then. */
  send(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: RabbitmqPublish,
    settled: (confirm: Confirm) => void,
  ): void {
    const { messageId, headers = {} } = options;
    this.#writes.gather();
    options.headers = this.#headers.use(headers);
    try {
      this.#channel.publish(exchange, routingKey, content, options, (error) => {
        this.#underWay--;
        if (this.#ended !== undefined) settled("lost");
        else if (this.#returned.size > 0 && this.#cameBack(nameOf(exchange, routingKey, messageId)))
          settled("unroutable");
        else if (error == null) settled("taken");
        else {
          this.#refused = true;
          settled("refused");
        }
      });
    } finally {
      this.#headers.release();
      options.headers = headers;
    }
    this.#underWay++;
  }

  async close(): Promise<void> {
    if (!this.ended) await endChannel(this.#channel);
  }

  #cameBack(name: string): boolean {
    const count = this.#returned.get(name);
    if (count === undefined) return false;
    if (count === 1) this.#returned.delete(name);
    else this.#returned.set(name, count - 1);
    return true;
  }
}

function nameOf(exchange: string, routingKey: string, messageId: unknown): string {
  return `${exchange}\0${routingKey}\0${typeof messageId === "string" ? messageId : ""}`;
}
