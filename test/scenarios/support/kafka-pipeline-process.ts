import { setTimeout as sleep } from "node:timers/promises";
import { createKafkaPipeline } from "../../../src/brokers/kafka/index.ts";
import { openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

// A pipeline that copies numbers, slowly enough to be killed in the middle; a line of output for every fifty.
const [brokers = "", input = "", output = ""] = process.argv.slice(2);
let handled = 0;
const pipeline = createKafkaPipeline({
  consumer: openConsumer(brokers.split(","), `group-${input}`),
  producer: (transactionalId) =>
    openProducer(brokers.split(","), { transactionalId, retries: 50, retryDelay: 20, timeout: 5000 }),
  topics: [input],
  sessionTimeoutMs: 1000,
  maxBatch: 37,
  handle: async ({ payload, key }, send) => {
    if (++handled % 50 === 0) process.stdout.write(`${handled}\n`);
    await sleep(2);
    send({ stream: output, type: "copied", key: String(key), payload });
  },
});
await pipeline.start();
process.stdout.write("started\n");
process.once("SIGTERM", () => void pipeline.stop().then(() => process.exit(0)));
