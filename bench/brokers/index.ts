import { startKafka, startNats, startRabbitmq, startRedis } from "../../test/harness/index.ts";
import type { Broker } from "./broker.ts";

interface Server {
  stop(): Promise<void>;
}

interface BrokerEntry {
  /** Starts a private server, or finds the one of the environment. */
  start(): Promise<{ server: Server; address: string }>;
  /** Loaded only in the process that needs it. */
  open(address: string): Promise<Broker>;
}

/** In the order of the run. */
export const BROKERS = {
  rabbitmq: {
    async start() {
      const server = await startRabbitmq();
      return { server, address: server.url };
    },
    open: async (address) => (await import("./rabbitmq.ts")).openRabbitmq(address),
  },
  kafka: {
    async start() {
      const server = await startKafka();
      return { server, address: server.brokers.join(",") };
    },
    open: async (address) => (await import("./kafka.ts")).openKafka(address),
  },
  nats: {
    async start() {
      const server = await startNats();
      return { server, address: server.url };
    },
    open: async (address) => (await import("./nats.ts")).openNats(address),
  },
  redis: {
    async start() {
      const server = await startRedis({ appendfsync: "everysec" });
      return { server, address: server.url };
    },
    open: async (address) => (await import("./redis.ts")).openRedis(address),
  },
} satisfies Record<string, BrokerEntry>;

export type BrokerName = keyof typeof BROKERS;
