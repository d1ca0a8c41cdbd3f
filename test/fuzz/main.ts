import { parseArgs } from "node:util";
import { createDatabase, startPostgres } from "../harness/index.ts";
import { type BrokerName, BROKERS } from "./broker-target.ts";
import { fuzzBroker } from "./fuzz-broker.ts";
import { fuzzStore } from "./fuzz-store.ts";
import { type StoreName, STORES } from "./store-target.ts";

const HELP = `npm run fuzz -- [options]

Hostile messages with good ones between them. With --broker, from a raw client of that broker to an inbox: each must be
delivered as it was sent, or be a dead letter with its bytes. With --store, through enqueue: each must be delivered equal,
or be refused before anything is written. All good ones must arrive once and in order. Exits with 1 otherwise.

  --broker NAME   ${BROKERS.join(", ")}
  --store NAME    ${STORES.join(", ")}
  --count N       how many hostile ones (default 20000)
  --seed S        seed of all random decisions (default: the time)
  --help          this text
`;

const { values } = parseArgs({
  options: {
    broker: { type: "string" },
    store: { type: "string" },
    count: { type: "string", default: "20000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    help: { type: "boolean", default: false },
  },
});
const { broker, store } = values;
const [count, seed] = [Number(values.count), Number(values.seed)];
if (values.help || (broker === undefined) === (store === undefined)) {
  process.stdout.write(HELP);
  process.exit(values.help ? 0 : 1);
}
process.stdout.write(`seed ${seed}\n`);
const onProgress = (sent: number): void => {
  if (sent % 2000 === 0) process.stdout.write(`${sent} sent\n`);
};
const server = await startPostgres();
try {
  const database = await createDatabase(server.url);
  const figures =
    broker === undefined
      ? await fuzzStore({ store: store as StoreName, databaseUrl: database.url, count, seed, onProgress })
      : await fuzzBroker({ broker: broker as BrokerName, databaseUrl: database.url, count, seed, onProgress });
  await database.drop();
  process.stdout.write(`${JSON.stringify(figures)}\n`);
} catch (error) {
  process.exitCode = 1;
  process.stdout.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
} finally {
  await server.stop();
}
// Timers of clients that are gone must not keep this process.
process.exit();
