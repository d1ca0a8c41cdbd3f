import type { ConfirmChannel, GetMessage, Message, Options } from "amqplib";
import { eventually } from "../../../src/testing/index.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";

/** Looks into queues and fills them with amqplib alone, also after the server was killed. */
export class RabbitmqObserver implements AsyncDisposable {
  readonly #link: TestConnection;
  /** Ids of messages for which the server had no queue. */
  readonly #returned = new Set<string>();
  #channel: Promise<ConfirmChannel> | undefined;

  static async to(url: string): Promise<RabbitmqObserver> {
    return new RabbitmqObserver(await testConnection(url));
  }

  private constructor(link: TestConnection) {
    this.#link = link;
  }

  channel(): Promise<ConfirmChannel> {
    this.#channel ??= this.#open().catch((error: unknown) => {
      this.#channel = undefined;
      throw error;
    });
    return this.#channel;
  }

  /** Puts whatever is in the queue into `got`, and waits until that has `count`. */
  async collect(queue: string, got: GetMessage[], count: number): Promise<readonly GetMessage[]> {
    return eventually(
      async () => {
        const channel = await this.channel();
        for (let one = await channel.get(queue, { noAck: true }); one !== false;) {
          got.push(one);
          one = await channel.get(queue, { noAck: true });
        }
        if (got.length < count) throw new Error(`${got.length} of ${count} messages arrived in ${queue}`);
        return got;
      },
      { timeoutMs: 15_000, intervalMs: 20 },
    );
  }

  /** A message with an id is sent until a queue has taken it. */
  async publish(exchange: string, routingKey: string, content: Buffer, options: Options.Publish): Promise<void> {
    await eventually(
      async () => {
        const channel = await this.channel();
        const { messageId: id } = options;
        const mandatory = id !== undefined;
        await new Promise<void>((resolve, reject) => {
          channel.publish(exchange, routingKey, content, { persistent: true, mandatory, ...options }, (error) =>
            error == null ? resolve() : reject(error),
          );
        });
        if (mandatory && this.#returned.delete(id))
          throw new Error(`no queue is bound to ${exchange} for ${routingKey}`);
      },
      { timeoutMs: 15_000, intervalMs: 50 },
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#link[Symbol.asyncDispose]();
  }

  async #open(): Promise<ConfirmChannel> {
    const channel = await this.#link.connection.createConfirmChannel();
    channel.on("error", () => undefined);
    channel.on("close", () => (this.#channel = undefined));
    // It comes before the confirm.
    channel.on("return", ({ properties }: Message) => this.#returned.add(String(properties.messageId)));
    return channel;
  }
}
