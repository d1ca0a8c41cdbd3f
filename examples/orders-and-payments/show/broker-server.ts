import { startKafka, startNats, startRabbitmq, startRedis } from "../../../test/harness/index.ts";
import type { BrokerName } from "../open-broker.ts";

/** A private server that may be killed. */
export interface BrokerServer {
  readonly url: string;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** On the same port and data. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export async function startBrokerServer(name: BrokerName): Promise<BrokerServer> {
  const options = { owned: true };
  switch (name) {
    case "redis":
      return startRedis(options);
    case "nats":
      return startNats(options);
    case "kafka": {
      const server = await startKafka(options);
      return {
        url: server.brokers.join(","),
        kill: () => server.kill(),
        restart: () => server.restart(),
        stop: () => server.stop(),
      };
    }
    case "rabbitmq":
      return startKillableRabbitmq();
  }
}

async function startKillableRabbitmq(): Promise<BrokerServer> {
  const server = await startRabbitmq({ owned: true });
  let saved = false;
  return {
    url: server.url,
    async kill() {
      // A single node of RabbitMQ 3.10 that is killed forgets young quorum queues, and may forget young bindings.
      if (!saved) await server.saveTopology();
      saved = true;
      await server.kill();
    },
    restart: () => server.restart(),
    stop: () => server.stop(),
  };
}
