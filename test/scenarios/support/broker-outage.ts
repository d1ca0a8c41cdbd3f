import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Publisher, Subscriber } from "../../../src/core/contracts.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { type Numbered, outboxDatabase, type OutboxDatabase } from "./outbox-database.ts";
import { isLong } from "../../support/is-long.ts";

/** Two seconds in ordinary runs, ten in long ones. */
export const OUTAGE_MS: number = isLong ? 10_000 : 2000;

const KEYS = isLong ? 200 : 100;
const EACH = isLong ? 100 : 50;
const MESSAGES = KEYS * EACH;
/** Were an outage to count as an attempt, messages would soon be dead. */
const MAX_ATTEMPTS = 2;

export interface BrokerUnderOutage {
  readonly publisher: Publisher;
  /** Of the stream "orders", for the consumer "effects". */
  subscriber(options: { maxAttempts: number; onEvent: (event: { type: string }) => void }): Subscriber;
  /** Between the start of the subscriber and the first message. */
  prepared?(): Promise<void>;
  kill(): Promise<void>;
  comeBack(): Promise<void>;
}

/**
 * 5,000 messages, 20,000 in long runs, flow from an outbox through the broker into an inbox; the broker is killed while both sides are at it.
 * Then each has had one effect, those of a key in order, and none was blamed.
 */
export async function surviveOutage(broker: BrokerUnderOutage): Promise<void> {
  await using database = await outboxDatabase();
  await database.query("create table effect (id bigint generated always as identity, key text, n int)");
  const { publisher } = broker;
  const [relayEvents, events]: [string[], string[]] = [[], []];
  const relay = createRelay({
    store: database.store,
    name: "to-broker",
    publisher,
    batchSize: 5 * EACH,
    maxAttempts: MAX_ATTEMPTS,
    maintenance: false,
    onEvent: ({ type }) => void relayEvents.push(type),
  });
  const inbox = createInbox({ store: database.store, consumer: "effects" });
  inbox.on("changed", async (tx, { payload }) => {
    const { key, n } = payload as Numbered;
    await tx.query("insert into effect (key, n) values ($1, $2)", [key, n]);
  });
  const effects = async (): Promise<number> => Number(await database.value("select count(*) from effect"));

  const onEvent = ({ type }: { type: string }): void => void events.push(type);
  await inbox.start(broker.subscriber({ maxAttempts: MAX_ATTEMPTS, onEvent }));
  await broker.prepared?.();
  await relay.start();
  try {
    await write(database, 1, EACH / 2);
    await until(async () => (await effects()) > MESSAGES / 10, { what: "the first effects", timeoutMs: 60_000 });
    // The relay is at it as well when the server dies.
    const writing = write(database, EACH / 2 + 1, EACH * 0.8);
    await until(() => relay.state().totals.published > MESSAGES * 0.55, {
      what: "the second half",
      timeoutMs: 60_000,
      intervalMs: 1,
    });
    await broker.kill();
    expect(relay.state().totals.published).toBeLessThan(MESSAGES * 0.9);
    expect(await effects()).toBeLessThan(MESSAGES * 0.9);
    await writing;
    await write(database, EACH * 0.8 + 1, EACH);
    await sleep(OUTAGE_MS);
    await broker.comeBack();
    await until(async () => (await effects()) >= MESSAGES, { what: "all effects", timeoutMs: 90_000, intervalMs: 100 });
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
  } finally {
    await relay.stop();
    await inbox.stop();
    await publisher.close?.();
  }

  expect(relayEvents).toContain("outage");
  expect(events).toEqual(expect.arrayContaining(["outage", "recovered"]));
  expect([...relayEvents, ...events].filter((type) => type === "retry" || type === "dead")).toEqual([]);
  expect(await effects()).toBe(MESSAGES);
  expect(await database.query(ORDER_BREAKS)).toEqual([]);
  expect(await database.value(BLAMED)).toBe(0);
  expect(await database.value("select count(*)::int from txbox.dead")).toBe(0);
  expect(await database.value(NOT_AT_ONCE)).toBe(0);
}

/** Effects that did not come right after the one before of their key: lost, doubled or out of order. */
const ORDER_BREAKS = `select key, n from (
  select key, n, lag(n, 1, 0) over (partition by key order by id) as before from effect
) t where n <> before + 1`;
const NOT_AT_ONCE =
  "select count(*)::int from txbox.message_status where stream = 'orders' and (attempts <> 1 or status <> 'published')";
const BLAMED = "select count(*)::int from txbox.receipt where attempts > 1 or status <> 'processed'";

/** Each key counts up; the keys take turns. */
async function write(database: OutboxDatabase, from: number, to: number): Promise<void> {
  for (let n = from; n <= to; n++) {
    await database.enqueue(Array.from({ length: KEYS }, (_, key) => ({ key: `k${key}`, n })));
  }
}
