import { invalidOption, requireMethods } from "../../adapter/index.ts";

/**
 * What the adapter calls of a connection: `connect()` of @nats-io/transport-node 3 gives one. JetStream is spoken
 * through it as its wire protocol describes, so that no JetStream client is needed beside it.
 */
export interface NatsConnection {
  readonly info?: { readonly max_payload: number } | undefined;
  publish(subject: string, payload?: Uint8Array | string, options?: NatsPublishOptions): void;
  subscribe(subject: string, options?: NatsSubscribeOptions): NatsSubscription;
  request(
    subject: string,
    payload?: Uint8Array | string,
    options?: { timeout: number; headers?: NatsMessageHeaders },
  ): Promise<NatsMessage>;
  flush(): Promise<void>;
  status(): AsyncIterable<NatsStatus> & { stop?(): void };
  isClosed(): boolean;
  closed(): Promise<unknown>;
}

export interface NatsPublishOptions {
  reply?: string;
  headers?: NatsMessageHeaders;
}

export interface NatsSubscribeOptions {
  callback?: (error: Error | null, message: NatsMessage) => void;
}

export interface NatsSubscription {
  unsubscribe(): void;
  drain(): Promise<void>;
}

/** Headers as they come; `code` is set in answers of the server. */
export interface NatsMessageHeaders extends Iterable<[string, string[]]> {
  readonly code: number;
  readonly description: string;
}

export interface NatsMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly reply?: string;
  readonly headers?: NatsMessageHeaders;
}

export interface NatsStatus {
  readonly type: string;
  readonly error?: Error;
}

const METHODS = ["publish", "subscribe", "request", "flush", "status", "isClosed", "closed"] as const;

/** Throws `invalid_option` for anything but an open connection. */
export function requireConnection(of: string, value: unknown): NatsConnection {
  const fix = 'Pass { connection: await connect({ servers, maxReconnectAttempts: -1 }) } of "@nats-io/transport-node"';
  const connection = requireMethods<NatsConnection>(of, "connection", value, METHODS, fix);
  if (connection.isClosed()) throw invalidOption(of, "connection", "this connection has been closed", fix);
  return connection;
}
