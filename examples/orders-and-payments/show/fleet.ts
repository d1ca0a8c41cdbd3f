import { createDatabase, freePort, startPostgres, type PostgresServer } from "../../../test/harness/index.ts";
import type { BrokerName } from "../open-broker.ts";
import { startBrokerServer, type BrokerServer } from "./broker-server.ts";
import { ServiceProcess } from "./service-process.ts";

export interface Databases {
  /** URL of the order service's. */
  orders: string;
  payments: string;
}

/** Servers, services and relays of a run. */
export class Fleet implements AsyncDisposable {
  readonly url: string;
  readonly databases: Databases;
  readonly broker: BrokerServer;
  readonly processes: readonly ServiceProcess[];
  readonly #postgres: PostgresServer;

  private constructor(
    postgres: PostgresServer,
    broker: BrokerServer,
    databases: Databases,
    url: string,
    processes: readonly ServiceProcess[],
  ) {
    this.#postgres = postgres;
    this.broker = broker;
    this.databases = databases;
    this.url = url;
    this.processes = processes;
  }

  static async start(name: BrokerName, verbose: boolean): Promise<Fleet> {
    const [postgres, broker] = await Promise.all([
      startPostgres({ owned: true, fsync: true }),
      startBrokerServer(name),
    ]);
    const [orders, payments] = await Promise.all(
      ["orders", "payments"].map((database) => createDatabase(postgres.url, database)),
    );
    const databases = { orders: orders!.url, payments: payments!.url };
    const port = await freePort();
    const common = { BROKER: name, BROKER_URL: broker.url };
    const service = (title: string, file: string, database: string, more: Record<string, string> = {}) =>
      new ServiceProcess({ name: title, file, verbose, env: { ...common, DATABASE_URL: database, ...more } });
    const services = [
      service("order service", "order-service.ts", databases.orders, { PORT: String(port) }),
      service("payment service", "payment-service.ts", databases.payments),
    ];
    const relays = [
      service("relay of orders", "relay.ts", databases.orders),
      service("relay of payments", "relay.ts", databases.payments),
    ];
    const fleet = new Fleet(postgres, broker, databases, `http://127.0.0.1:${port}`, [...services, ...relays]);
    try {
      // Receivers first: tables, queues and groups are there before anything is sent.
      for (const one of services) one.start();
      await Promise.all(services.map((one) => one.said("subscribed")));
      for (const one of relays) one.start();
      await Promise.all(relays.map((one) => one.said("ready")));
    } catch (error) {
      await fleet[Symbol.asyncDispose]();
      throw error;
    }
    return fleet;
  }

  get crashes(): string[] {
    return this.processes.flatMap((one) => one.crashes);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.processes.map((one) => one.stop()));
    await Promise.allSettled([this.broker.stop(), this.#postgres.stop()]);
  }
}
