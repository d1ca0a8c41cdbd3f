import { randomBytes } from "node:crypto";
import type { Channel } from "amqplib";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRabbitmqPublisher, type RabbitmqPublisherOptions } from "../../../src/brokers/rabbitmq/index.ts";
import type { Publisher } from "../../../src/core/contracts.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";
import { outboxDatabase, type Numbered, type OutboxDatabase } from "../support/outbox-database.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

const KEYS = 4;
const EACH = 40;
/** Were a refusal to count as an attempt, messages would soon be dead. */
const MAX_ATTEMPTS = 2;

/** Two queues behind one exchange; the queue of a message is the beginning of its key. */
describe.skipIf(slot.skipped || !hasPostgres())("a relay with one route of RabbitMQ out", () => {
  let link: TestConnection;
  let database: OutboxDatabase;
  let channel: Channel;
  let exchange: string;
  let bad: string;
  let good: string;
  let publisher: Publisher | undefined;
  let relay: Relay | undefined;
  let events: RelayEvent[];
  let got: Map<string, Numbered[]>;

  beforeEach(async () => {
    link = await testConnection(slot.server.url);
    database = await outboxDatabase();
    channel = await link.connection.createChannel();
    exchange = `e${randomBytes(4).toString("hex")}`;
    [bad, good] = [`${exchange}.bad`, `${exchange}.good`];
    events = [];
    got = new Map();
    await channel.assertExchange(exchange, "topic");
    await makeQueue(good);
  });
  afterEach(async () => {
    await relay?.stop();
    await publisher?.close?.();
    await link[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });

  async function makeQueue(queue: string, queueArguments: object = {}): Promise<void> {
    await channel.assertQueue(queue, { arguments: queueArguments });
    await channel.bindQueue(queue, exchange, queue);
  }

  async function startRelay(options: Partial<RabbitmqPublisherOptions> = {}): Promise<void> {
    publisher = createRabbitmqPublisher({
      connection: link.connection,
      route: ({ key }) => ({ exchange, routingKey: key?.split("/")[0] ?? "" }),
      ...options,
    });
    relay = createRelay({
      store: database.store,
      name: "to-rabbitmq",
      publisher,
      maxAttempts: MAX_ATTEMPTS,
      backoff: { baseMs: 5, maxMs: 50 },
      maintenance: false,
      onEvent: (event) => events.push(event),
    });
    await relay.start();
  }

  async function write(queue: string, from: number, to: number): Promise<void> {
    for (let n = from; n <= to; n++) {
      await database.enqueue(Array.from({ length: KEYS }, (_, k) => ({ key: `${queue}/${k}`, n })));
    }
  }

  /** Takes what is in the queue, until so many have come. */
  async function arrived(queue: string, count: number): Promise<void> {
    const messages = got.get(queue) ?? [];
    got.set(queue, messages);
    await until(
      async () => {
        for (let one = await channel.get(queue, { noAck: true }); one !== false;) {
          messages.push(JSON.parse(one.content.toString()) as Numbered);
          one = await channel.get(queue, { noAck: true });
        }
        return messages.length >= count;
      },
      { what: `${count} messages in ${queue}`, timeoutMs: 60_000, intervalMs: 20 },
    );
  }

  const ofType = (...types: string[]): RelayEvent[] => events.filter(({ type }) => types.includes(type));

  async function expectAllInOrder(queue: string): Promise<void> {
    const all = Array.from({ length: EACH }, (_, i) => i + 1);
    for (let k = 0; k < KEYS; k++) {
      const mine = (got.get(queue) ?? []).filter(({ key }) => key === `${queue}/${k}`).map(({ n }) => n);
      expect([...new Set(mine)], `${queue}/${k}`).toEqual(all);
    }
  }

  async function expectNobodyBlamed(): Promise<void> {
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    expect(ofType("retry", "dead", "outage")).toEqual([]);
    expect(await database.value("select count(*)::int from txbox.dead")).toBe(0);
    const infos = await database.store.admin.find({ stream: "orders", limit: 10_000 });
    expect(infos.filter(({ attempts, status }) => attempts !== 1 || status !== "published")).toEqual([]);
  }

  it("a full queue: its messages wait uncounted, the others flow, and it is named until it takes messages again", async () => {
    await makeQueue(bad, { "x-max-length": 5, "x-overflow": "reject-publish" });
    await startRelay();
    await write(bad, 1, EACH);
    await write(good, 1, EACH);
    await arrived(good, KEYS * EACH);
    // Tried more often than there are attempts.
    await until(() => ofType("route_out").length > MAX_ATTEMPTS + 2, { what: "attempts", timeoutMs: 60_000 });
    expect(relay?.state().routesOut).toMatchObject([{ route: `${exchange}/${bad}` }]);
    expect(relay?.state().routesOut[0]?.error).toContain("refuses messages");
    await arrived(bad, KEYS * EACH);
    await expectAllInOrder(bad);
    await expectAllInOrder(good);
    await expectNobodyBlamed();
    expect(relay?.state().routesOut).toEqual([]);
    expect(ofType("route_back")).toContainEqual({
      type: "route_back",
      relay: "to-rabbitmq",
      route: `${exchange}/${bad}`,
    });
  });

  it("a queue that is deleted and made anew: the same", async () => {
    await makeQueue(bad);
    await startRelay({ unroutable: "reject" });
    await write(bad, 1, 5);
    await arrived(bad, KEYS * 5);
    await channel.deleteQueue(bad);
    await write(bad, 6, EACH);
    await write(good, 1, EACH);
    await arrived(good, KEYS * EACH);
    await until(() => ofType("route_out").length > MAX_ATTEMPTS + 2, { what: "attempts", timeoutMs: 60_000 });
    await makeQueue(bad);
    await arrived(bad, KEYS * EACH);
    await expectAllInOrder(bad);
    await expectAllInOrder(good);
    await expectNobodyBlamed();
  });

  it("a queue that is made only after the relay was started: the same", async () => {
    await startRelay();
    await write(bad, 1, EACH);
    await write(good, 1, EACH);
    await arrived(good, KEYS * EACH);
    await until(() => ofType("route_out").length > 1, { what: "an attempt" });
    await makeQueue(bad);
    await arrived(bad, KEYS * EACH);
    await expectAllInOrder(bad);
    await expectNobodyBlamed();
  });

  it("a message that is larger than its queue takes dies, and stops no other message", async () => {
    await makeQueue(bad, { "x-max-length-bytes": 1000, "x-overflow": "reject-publish" });
    await startRelay();
    await write(bad, 1, 5);
    await database.enqueue([{ key: `${bad}/large`, n: 0, text: "x".repeat(2000) } as Numbered]);
    await database.enqueue([{ key: `${bad}/large`, n: 1 }]);
    for (let n = 6; n <= EACH; n++) {
      await write(bad, n, n);
      await arrived(bad, KEYS * n);
    }
    // Others pass while it is refused again and again.
    let others = 0;
    const deadline = performance.now() + 60_000;
    for (; ofType("dead").length === 0 && performance.now() < deadline; others++) {
      await database.enqueue([{ key: `${bad}/other`, n: others }]);
      await arrived(bad, KEYS * EACH + others + 1);
    }
    await arrived(bad, KEYS * EACH + others + 1);
    await expectAllInOrder(bad);
    const dead = await database.store.admin.dead({ relay: "to-rabbitmq" });
    expect(dead).toMatchObject([{ key: `${bad}/large`, attempts: MAX_ATTEMPTS }]);
    expect(dead[0]?.lastError).toContain("x-max-length-bytes");
    // What came after it in its key has gone on.
    expect(got.get(bad)).toContainEqual({ key: `${bad}/large`, n: 1 });
  });

  it("what never had a way is dead at once: no exchange, no queue of that name", async () => {
    const nowhere = { exchange: "", routingKey: `${exchange}.never` };
    const route = ({ key }: { key: string | null }): { exchange: string; routingKey: string } =>
      key === "1" ? nowhere : { exchange: `${exchange}.never`, routingKey: "any" };
    await startRelay({ route });
    await database.enqueue([1, 2].map((key) => ({ key: String(key), n: 1 })));
    await until(() => ofType("dead").length === 2, { what: "dead letters" });
    expect(ofType("dead")).toMatchObject([{ attempts: 1 }, { attempts: 1 }]);
    expect(ofType("route_out", "retry")).toEqual([]);
  });
});
