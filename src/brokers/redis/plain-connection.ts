import type { IoredisClient, NodeRedisClient, NodeRedisSentinel, RedisClient } from "./redis-client.ts";

export type RedisArgument = string | Buffer;

/** A client of our own: it never connects again, keeps nothing for later and repeats nothing. */
export interface PlainConnection {
  connect(): Promise<unknown>;
  send(args: readonly RedisArgument[]): Promise<unknown>;
  close(): void;
  on(event: "error" | "end" | "close", listener: (error: Error) => void): void;
}

/** Connections are thrown away when they break: what a client would send again after that could double or reorder. */
export function plainConnection(client: RedisClient): PlainConnection {
  if ("callBuffer" in client) return fromIoredis(client);
  return "getSentinelNode" in client ? fromNodeRedisSentinel(client) : fromNodeRedis(client);
}

/** Through Sentinel it asks for the master each time that it connects. */
function fromIoredis(client: IoredisClient): PlainConnection {
  const own = client.duplicate({
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    enableAutoPipelining: false,
    retryStrategy: null,
    sentinelRetryStrategy: null,
    reconnectOnError: null,
    commandTimeout: undefined,
    socketTimeout: undefined,
    blockingTimeout: undefined,
  });
  return {
    connect: () => own.connect(),
    send: (args) => own.callBuffer(String(args[0]), args.slice(1)),
    close: () => own.disconnect(),
    on: (event, listener) => void own.on(event, listener),
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
    on: (event, listener) => void own.on(event, listener),
  };
}

/**
 * The Sentinel client of node-redis sends commands again after a failover, and to another server than before. So it is
 * only asked for the master, and the connection is one to that server alone.
 */
function fromNodeRedisSentinel(client: NodeRedisSentinel): PlainConnection {
  const listeners: Parameters<PlainConnection["on"]>[] = [];
  let own: PlainConnection | undefined;
  let closed = false;
  return {
    async connect() {
      const master = await masterOf(client, () => closed);
      own = fromNodeRedis(master);
      for (const [event, listener] of listeners) own.on(event, listener);
      if (closed) own.close();
      await own.connect();
    },
    async send(args) {
      if (own === undefined) throw new Error("The connection to Redis was closed");
      return own.send(args);
    },
    close() {
      closed = true;
      own?.close();
    },
    on(event, listener) {
      listeners.push([event, listener]);
      own?.on(event, listener);
    },
  };
}

/** A client of the present master, not to be used but copied: its connection has ended. */
async function masterOf(client: NodeRedisSentinel, gaveUp: () => boolean): Promise<NodeRedisClient> {
  // One look at the sentinels: the caller that connects tries again by itself.
  const sentinel = client.duplicate({ maxCommandRediscovers: 0, masterPoolSize: 1, replicaPoolSize: 0 });
  let reason: unknown;
  sentinel.on("error", (error) => (reason ??= error));
  try {
    await sentinel.connect();
    if (gaveUp()) throw new Error("The connection to Redis was closed");
    const { master } = await sentinel._execute(false, async (lent) => ({ master: lent }));
    return master;
  } catch (error) {
    throw reason instanceof Error ? reason : error;
  } finally {
    sentinel.destroy().catch(() => undefined);
  }
}
