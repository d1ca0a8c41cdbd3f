import { defineConfig } from "txbox/config";
import { type Broker, openBroker } from "./open-broker.ts";
import { setting } from "./settings.ts";

let broker: Broker | undefined;

// For the command line, in this folder: `npx txbox relay to-redis` does what relay.ts does, and `npx txbox status`, `relays`
// and `dead` look at the tables. The database is the one of DATABASE_URL.
export default defineConfig({
  relays: {
    [`to-${process.env["BROKER"] ?? "redis"}`]: {
      publisher: async () => {
        broker = await openBroker(setting("BROKER"), setting("BROKER_URL"));
        return broker.publisher();
      },
      leaseMs: 3000,
    },
  },
  close: async () => void (await broker?.close()),
});
