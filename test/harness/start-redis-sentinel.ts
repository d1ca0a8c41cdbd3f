import { createClient } from "redis";
import { until } from "./deadline.ts";
import { type RedisServer, startRedis } from "./start-redis.ts";

const DOWN_AFTER_MS = 1000;
const FAILOVER_TIMEOUT_MS = 4000;

export interface RedisSentinelGroup {
  /** The name of the group. */
  readonly name: string;
  readonly sentinels: readonly { readonly host: string; readonly port: number }[];
  /** The server that the sentinels take for the master. */
  master(): Promise<RedisServer>;
  /** Kills the master; resolves when the sentinels have made the other server the master. */
  killMaster(): Promise<RedisServer>;
  /** Starts a killed server; resolves when it is a replica that has caught up. */
  bringBack(server: RedisServer): Promise<void>;
  stop(): Promise<void>;
}

/** A master and a replica that take writes only while the other one follows, and three sentinels. */
export async function startRedisSentinel(): Promise<RedisSentinelGroup> {
  const name = "orders-redis";
  const safe = { "min-replicas-to-write": "1", "min-replicas-max-lag": "10", "repl-diskless-sync-delay": "0" };
  const started: RedisServer[] = [];
  const start = async (options: Parameters<typeof startRedis>[0]): Promise<RedisServer> => {
    const server = await startRedis({ owned: true, ...options });
    started.push(server);
    return server;
  };
  const first = await start({ settings: safe });
  const second = await start({ settings: { ...safe, replicaof: `127.0.0.1 ${first.port}` } });
  const servers = [first, second];
  await until(() => follows(second, first), { what: "replication", timeoutMs: 60_000 });
  const watching: RedisServer[] = [];
  for (let n = 0; n < 3; n++) {
    watching.push(
      await start({
        sentinel: [
          `sentinel monitor ${name} 127.0.0.1 ${first.port} 2`,
          `sentinel down-after-milliseconds ${name} ${DOWN_AFTER_MS}`,
          `sentinel failover-timeout ${name} ${FAILOVER_TIMEOUT_MS}`,
        ],
      }),
    );
  }
  const masterPort = async (sentinel: RedisServer): Promise<number> => {
    const reply = (await ask(sentinel, "SENTINEL", "get-master-addr-by-name", name)) as string[];
    return Number(reply[1]);
  };
  const agreed = async (): Promise<RedisServer | undefined> => {
    const ports = new Set(await Promise.all(watching.map(masterPort)));
    return ports.size === 1 ? servers.find(({ port }) => ports.has(port)) : undefined;
  };
  const know = async (): Promise<boolean> => {
    const replies = await Promise.all(watching.map((one) => ask(one, "SENTINEL", "master", name)));
    return replies.every((reply) => {
      const fields = reply as string[];
      const value = (field: string): string | undefined => fields[fields.indexOf(field) + 1];
      return value("num-slaves") === "1" && value("num-other-sentinels") === "2" && value("flags") === "master";
    });
  };
  await until(know, { what: "sentinels that know each other", timeoutMs: 60_000, intervalMs: 100 });

  async function master(): Promise<RedisServer> {
    let found: RedisServer | undefined;
    const look = async (): Promise<boolean> => (found = await agreed()) !== undefined;
    await until(look, { what: "one master", timeoutMs: 60_000, intervalMs: 100 });
    return found!;
  }

  return {
    name,
    sentinels: watching.map(({ port }) => ({ host: "127.0.0.1", port })),
    master,
    async killMaster() {
      const dead = await master();
      await dead.kill();
      const changed = async (): Promise<boolean> => {
        const next = await agreed();
        return next !== undefined && next !== dead;
      };
      await until(changed, { what: "a failover", timeoutMs: 60_000, intervalMs: 100 });
      return dead;
    },
    async bringBack(server) {
      await server.start();
      const [other] = servers.filter((one) => one !== server);
      await until(() => follows(server, other!), { what: "a replica", timeoutMs: 60_000, intervalMs: 100 });
      await until(know, { what: "sentinels that know the replica", timeoutMs: 60_000, intervalMs: 100 });
    },
    async stop() {
      for (const server of started.toReversed()) await server.stop();
    },
  };
}

async function follows(replica: RedisServer, master: RedisServer): Promise<boolean> {
  const role = (await ask(replica, "ROLE").catch(() => [])) as unknown[];
  return role[0] === "slave" && Number(role[2]) === master.port && role[3] === "connected";
}

async function ask(server: RedisServer, ...args: string[]): Promise<unknown> {
  const client = createClient({ url: server.url, RESP: 2, socket: { reconnectStrategy: false } });
  client.on("error", () => undefined);
  await client.connect();
  try {
    return await client.sendCommand(args);
  } finally {
    client.destroy();
  }
}
