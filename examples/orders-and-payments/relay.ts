import { createRelay } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { openPool } from "./database.ts";
import { onStop } from "./on-stop.ts";
import { openBroker } from "./open-broker.ts";
import { setting } from "./settings.ts";

// One relay for each service's database; several processes with the same settings share the work.
const pool = openPool(setting("DATABASE_URL"));
onStop(() => pool.end());
const broker = await openBroker(setting("BROKER"), setting("BROKER_URL"));
onStop(() => broker.close());

const relay = createRelay({
  store: createPostgresStore({ client: pool }),
  name: `to-${setting("BROKER")}`,
  publisher: broker.publisher(),
  leaseMs: 3000, // a relay that was killed is replaced after three seconds
  onEvent(event) {
    if (event.type === "outage" && event.attempt === 1) console.log(`outage: ${event.error}`);
    if (event.type === "recovered") console.log("recovered");
    if (event.type === "dead" || event.type === "retry") console.log(`${event.type}: ${event.id} ${event.error}`);
  },
});
await relay.start();
onStop(() => relay.stop());
console.log("ready");
