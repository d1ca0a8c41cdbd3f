import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKafkaPublisher } from "../../../src/brokers/kafka/index.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip, type ServerSlot } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type NodeProcess, spawnNode } from "../../harness/spawn-node.ts";
import { startKafka, type KafkaServer } from "../../harness/start-kafka.ts";
import { createTopic, openProducer } from "../../support/kafka/kafka-clients.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const KEYS = 60;
const ROUNDS = 200;
const MESSAGES = KEYS * ROUNDS;

describe.skipIf(!hasPostgres())("a Kafka consumer group that changes in mid-flow", () => {
  let slot: ServerSlot<KafkaServer>;
  let database: OutboxDatabase;
  const children: NodeProcess[] = [];

  beforeAll(async () => {
    slot = await serverOrSkip("Kafka", () => startKafka());
    database = await outboxDatabase();
    await database.query("create table effects (at bigserial primary key, key text, n int, by text)");
  });
  afterAll(async () => {
    for (const child of children) await child.kill();
    await slot.stop();
    await database[Symbol.asyncDispose]();
  });

  function consumer(name: string): NodeProcess {
    const file = new URL("../support/kafka-inbox-process.ts", import.meta.url).pathname;
    const child = spawnNode(file, [slot.server.brokers.join(), database.url, name]);
    children.push(child);
    return child;
  }

  const by = async (name: string): Promise<number> =>
    Number(await database.value("select count(*) from effects where by = $1", [name]));

  it("a second consumer joins, the first is killed, a third comes: nothing lost, every key in order, each effect once", async ({
    skip,
  }) => {
    if (slot.skipped) skip(slot.reason);
    const { brokers } = slot.server;
    await createTopic(brokers, "orders", 6);
    await createTopic(brokers, "orders.dead", 1);
    const publisher = createKafkaPublisher({ producer: openProducer(brokers) });
    const relay = createRelay({ store: database.store, name: "to-kafka", publisher, maintenance: false });
    await relay.start();
    const writing = write(database);

    const first = consumer("first");
    await until(async () => (await by("first")) > 500, { what: "effects of the first", timeoutMs: 60_000 });
    const second = consumer("second");
    await until(async () => (await by("second")) > 500, { what: "effects of the second", timeoutMs: 60_000 });
    await first.kill("SIGKILL");
    const atKill = await by("second");
    const third = consumer("third");
    await until(async () => (await by("third")) > 500, { what: "effects of the third", timeoutMs: 60_000 });
    expect(await by("second")).toBeGreaterThan(atKill);
    second.signal("SIGTERM");
    await writing;
    const effects = async (): Promise<number> => Number(await database.value("select count(*) from effects"));
    await until(async () => (await effects()) >= MESSAGES, { what: "all effects", timeoutMs: 60_000, intervalMs: 100 });
    expect((await second.waitForExit()).code).toBe(0);
    third.signal("SIGTERM");
    expect((await third.waitForExit()).code).toBe(0);
    await relay.stop();

    expect(await effects()).toBe(MESSAGES);
    expect(await database.value("select count(distinct (key, n)) from effects")).toBe(String(MESSAGES));
    expect(await database.value(ORDER_BREAKS)).toBe("0");
    const said = children.flatMap(({ stderr }) => [...stderr]);
    expect(said.filter((line) => /"type":"(?:dead|retry)"/.test(line))).toEqual([]);
  });
});

/** Effects that came before an earlier one of their key. */
const ORDER_BREAKS = `select count(*) from (
  select n, lag(n) over (partition by key order by at) as before from effects
) as steps where before is not null and n <> before + 1`;

/** Each key counts up; the keys take turns, at a pace that lasts through all the changes. */
async function write(database: OutboxDatabase): Promise<void> {
  for (let n = 1; n <= ROUNDS; n++) {
    await database.enqueue(Array.from({ length: KEYS }, (_, key) => ({ key: `k${key}`, n })));
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
}
