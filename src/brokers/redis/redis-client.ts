import { TxboxError } from "../../core/errors.ts";

/** What is used of an ioredis client, of one server or through Sentinel. */
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

/** What is used of a Sentinel client of node-redis: it finds the master. */
export interface NodeRedisSentinel {
  duplicate(options?: object): NodeRedisSentinel;
  connect(): Promise<unknown>;
  getSentinelNode(): unknown;
  /** Lends its client of the master. */
  _execute<T>(isReadonly: boolean, use: (master: NodeRedisClient) => Promise<T>): Promise<T>;
  destroy(): Promise<unknown>;
  on(event: string, listener: (error: Error) => void): unknown;
}

/**
 * A client of ioredis (5 or later), `createClient` or `createSentinel` of node-redis (5 or later). It says where and as
 * whom to connect; it is not used itself.
 */
export type RedisClient = IoredisClient | NodeRedisClient | NodeRedisSentinel;

const PASS_ONE = 'Pass { client: new Redis(url) } of "ioredis" or { client: createClient({ url }) } of "redis"';

/** Which kind of client it is decides how it is asked: each has methods of the same name that take other arguments. */
export function requireRedisClient(of: string, client: unknown): RedisClient {
  const given = (typeof client === "object" || typeof client === "function" ? client : {}) as Record<string, unknown>;
  const has = (name: string): boolean => typeof given?.[name] === "function";
  if (given?.["isCluster"] === true || has("getSlotRandomNode") || "slots" in (given ?? {})) {
    throw invalid(`${of}: a client of a Redis Cluster is not supported`, "Pass a client of one server or of Sentinel");
  }
  if (has("getSentinelNode")) {
    if (has("duplicate") && has("_execute") && has("destroy")) return client as NodeRedisSentinel;
    throw invalid(`${of} cannot use this Sentinel client`, "Use createSentinel of redis 5 or later");
  }
  if (has("execute") && "totalClients" in given) {
    throw invalid(`${of}: a pool of clients is not supported`, `It opens connections of its own. ${PASS_ONE}`);
  }
  if (has("duplicate") && has("callBuffer")) {
    const { role, sentinels } = (given["options"] ?? {}) as { role?: unknown; sentinels?: unknown };
    if (sentinels != null && role === "slave") {
      throw invalid(`${of}: this client connects to replicas, which take no writes`, 'Leave role: "slave" out');
    }
    return client as IoredisClient;
  }
  if (has("duplicate") && has("sendCommand") && has("destroy")) return client as NodeRedisClient;
  throw invalid(`${of} needs a Redis client`, PASS_ONE);
}

function invalid(message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", message, { field: "client", fix });
}
