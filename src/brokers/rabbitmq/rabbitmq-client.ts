import { invalidOption, requireMethods } from "../../adapter/index.ts";

// oxlint-disable-next-line typescript/no-explicit-any -- the type of listeners in node:events
type Listener = (...args: any[]) => void;

/** What `amqplib` gives for `connect(url, { recovery: true })`: a connection that comes back by itself. */
export interface RabbitmqConnection {
  createChannel(): Promise<RabbitmqChannel>;
  createConfirmChannel(): Promise<RabbitmqConfirmChannel>;
  /** Only a connection that recovers has it. */
  waitForConnect(): Promise<unknown>;
  on(event: string, listener: Listener): unknown;
}

export interface RabbitmqChannel {
  on(event: string, listener: Listener): unknown;
  prependListener(event: string, listener: Listener): unknown;
  close(): Promise<void>;
  assertExchange(exchange: string, type: string, options?: { durable?: boolean }): Promise<unknown>;
  checkExchange(exchange: string): Promise<unknown>;
  assertQueue(queue: string, options?: { durable?: boolean; arguments?: Record<string, unknown> }): Promise<unknown>;
  checkQueue(queue: string): Promise<{ messageCount: number }>;
  bindQueue(queue: string, source: string, pattern: string): Promise<unknown>;
  prefetch(count: number): Promise<unknown>;
  consume(queue: string, onMessage: (message: RabbitmqMessage | null) => void): Promise<{ consumerTag: string }>;
  cancel(consumerTag: string): Promise<unknown>;
  ack(message: RabbitmqMessage, allUpTo?: boolean): void;
}

export interface RabbitmqConfirmChannel extends RabbitmqChannel {
  publish(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: RabbitmqPublish,
    confirmed: (error: unknown) => void,
  ): boolean;
}

export interface RabbitmqPublish {
  persistent?: boolean;
  mandatory?: boolean;
  messageId?: string;
  type?: string;
  correlationId?: string;
  /** In seconds. */
  timestamp?: number;
  contentType?: string;
  contentEncoding?: string;
  headers?: Record<string, unknown>;
}

/** A delivery, or a message that came back because no queue wanted it. */
export interface RabbitmqMessage {
  readonly content: Buffer;
  readonly fields: {
    readonly exchange: string;
    readonly routingKey: string;
    readonly deliveryTag?: number;
    readonly replyText?: string;
  };
  readonly properties: {
    readonly headers?: Readonly<Record<string, unknown>> | undefined;
    readonly messageId?: unknown;
    readonly type?: unknown;
    readonly correlationId?: unknown;
    readonly timestamp?: unknown;
    readonly contentType?: unknown;
    readonly contentEncoding?: unknown;
  };
}

/** Throws when `connection` is something else than a connection of amqplib that recovers. */
export function requireConnection(of: string, value: unknown): RabbitmqConnection {
  const fix = "Pass the result of await connect(url, { recovery: true }) of amqplib 2.2 or later";
  const methods = ["createChannel", "createConfirmChannel", "on"] as const;
  const connection = requireMethods<RabbitmqConnection>(of, "connection", value, methods, fix);
  if (typeof Reflect.get(connection, "waitForConnect") === "function") return connection;
  throw invalidOption(of, "connection", "this connection does not come back after the broker was away", fix);
}
