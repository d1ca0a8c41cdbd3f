import { TxboxError } from "../../core/errors.ts";

/** What is used of an ioredis client. */
export interface IoredisClient {
  readonly options: object;
  duplicate(options?: object): IoredisClient;
  connect(): Promise<unknown>;
  callBuffer(command: string, args: (string | Buffer)[]): Promise<unknown>;
  disconnect(): void;
  on(event: string, listener: (error: Error) => void): unknown;
}

/** What is used of a node-redis client. */
export interface NodeRedisClient {
  readonly options?: { readonly socket?: object | undefined } | undefined;
  duplicate(options?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  sendCommand(args: readonly (string | Buffer)[], options?: object): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: (error: Error) => void): unknown;
}

/** A client of ioredis (5 or later) or node-redis (5 or later). It says where and as whom to connect; it is not used itself. */
export type RedisClient = IoredisClient | NodeRedisClient;

export type RedisArgument = string | Buffer;

/** A client of our own: it never connects again, keeps nothing for later and repeats nothing. */
export interface PlainConnection {
  connect(): Promise<unknown>;
  send(args: readonly RedisArgument[]): Promise<unknown>;
  close(): void;
  on(event: string, listener: (error: Error) => void): unknown;
}

export function requireRedisClient(of: string, client: unknown): RedisClient {
  const given = (typeof client === "object" || typeof client === "function" ? client : {}) as Record<string, unknown>;
  const has = (name: string): boolean => typeof given?.[name] === "function";
  if (given?.["isCluster"] === true || (has("getSlotRandomNode") && has("sendCommand"))) {
    throw invalid(`${of}: a client of a Redis Cluster is not supported`, "Pass a client of one node or of Sentinel");
  }
  if (has("duplicate") && (has("callBuffer") || (has("sendCommand") && has("destroy")))) return client as RedisClient;
  throw invalid(
    `${of} needs a Redis client`,
    'Pass { client: new Redis(url) } of "ioredis" or { client: createClient({ url }) } of "redis"',
  );
}

/** Connections are thrown away when they break: what a client would send again after that could double or reorder. */
export function plainConnection(client: RedisClient): PlainConnection {
  return "callBuffer" in client ? fromIoredis(client) : fromNodeRedis(client);
}

function fromIoredis(client: IoredisClient): PlainConnection {
  const own = client.duplicate({
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    enableAutoPipelining: false,
    retryStrategy: null,
    reconnectOnError: null,
    commandTimeout: undefined,
    socketTimeout: undefined,
    blockingTimeout: undefined,
  });
  return {
    connect: () => own.connect(),
    send: (args) => own.callBuffer(String(args[0]), args.slice(1)),
    close: () => own.disconnect(),
    on: (event, listener) => own.on(event, listener),
  };
}

/** RESP types of node-redis: strings as bytes, and maps as RESP2 has them. */
const AS_BYTES = { typeMapping: { 36: Buffer, 37: Array } };

function fromNodeRedis(client: NodeRedisClient): PlainConnection {
  const own = client.duplicate({
    disableOfflineQueue: true,
    maintNotifications: "disabled",
    socket: { ...client.options?.socket, reconnectStrategy: false, socketTimeout: undefined },
  });
  return {
    connect: () => own.connect(),
    send: (args) => own.sendCommand(args, AS_BYTES),
    close() {
      try {
        own.destroy();
      } catch {
        // It was closed already.
      }
    },
    on: (event, listener) => own.on(event, listener),
  };
}

function invalid(message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", message, { field: "client", fix });
}
