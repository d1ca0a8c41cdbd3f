import { setTimeout as sleep } from "node:timers/promises";
import { connect, type GetMessage } from "amqplib";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import {
  createRabbitmqPublisher,
  createRabbitmqSubscriber,
  rabbitmqUrls,
} from "../../../src/brokers/rabbitmq/index.ts";
import { openFromRabbitmq } from "../../../src/brokers/rabbitmq/rabbitmq-envelope.ts";
import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { payloadsOf, sample } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRabbitmqCluster } from "../../harness/start-rabbitmq-cluster.ts";
import type { RabbitmqServer } from "../../harness/start-rabbitmq.ts";
import { RabbitmqObserver } from "../../conformance/rabbitmq/rabbitmq-observer.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";
import { outboxDatabase, type Numbered } from "../support/outbox-database.ts";
import { isLong } from "../../support/is-long.ts";

// It takes minutes: three nodes, each killed and started again.
const slot = isLong ? await serverOrSkip("RabbitMQ", () => startRabbitmqCluster()) : undefined;
afterAll(() => slot?.stop());
afterEach(async () => {
  for (const node of slot?.skipped === false ? slot.server.nodes : []) if (node.pid === undefined) await node.restart();
}, 120_000);

const EXCHANGE = "flow";
const QUEUES = ["classic", "quorum", "full"] as const;
type Queue = (typeof QUEUES)[number];
const KEYS_EACH = 5;
const never = new AbortController().signal;
const keysOf = (queue: Queue): string[] => Array.from({ length: KEYS_EACH }, (_, i) => `${queue}-${i}`);
const keys = QUEUES.flatMap(keysOf);
/** The queue of a message is the beginning of its key. */
const route = ({ key }: Message): { exchange: string; routingKey: string } => ({
  exchange: EXCHANGE,
  routingKey: key?.split("-")[0] ?? "",
});

/** The classic queue lives on the first node; the full one, on the second, takes a few messages until it is emptied. */
async function makeQueues([first, second]: readonly RabbitmqServer[]): Promise<void> {
  const settings: Record<Queue, [RabbitmqServer | undefined, object]> = {
    classic: [first, {}],
    quorum: [first, { "x-queue-type": "quorum" }],
    full: [second, { "x-max-length": 20, "x-overflow": "reject-publish" }],
  };
  for (const queue of QUEUES) {
    const [node, queueArguments] = settings[queue];
    await using link = await testConnection(node?.url ?? "");
    const channel = await link.connection.createChannel();
    await channel.assertExchange(EXCHANGE, "topic");
    await channel.deleteQueue(queue);
    await channel.assertQueue(queue, { durable: true, arguments: queueArguments });
    await channel.bindQueue(queue, EXCHANGE, queue);
  }
}

/** What is in the queue now; a server that is losing or getting a node may end the connection instead. */
async function takeAll(observer: RabbitmqObserver, queue: Queue, got: GetMessage[]): Promise<number> {
  try {
    const channel = await observer.channel();
    for (let one = await channel.get(queue, { noAck: true }); one !== false;) {
      got.push(one);
      one = await channel.get(queue, { noAck: true });
    }
  } catch {
    // The rest comes with the next look.
  }
  return got.length;
}

/** What the relay does: messages go until they are published, those of a key in order; a failed one would count. */
class Sender {
  readonly #publisher: Publisher;
  readonly #sent: Record<Queue, number> = { classic: 0, quorum: 0, full: 0 };
  readonly #left = new Map<string, Message[]>(keys.map((key) => [key, []]));
  readonly blamed: PublishResult[] = [];
  readonly routesOut = new Set<string | undefined>();
  /** How many of each key there are. */
  each = 0;

  constructor(publisher: Publisher) {
    this.#publisher = publisher;
  }

  get sent(): Readonly<Record<Queue, number>> {
    return { ...this.#sent };
  }

  get left(): number {
    return [...this.#left.values()].reduce((sum, { length }) => sum + length, 0);
  }

  /** Writes and sends until something is true. */
  async until(what: string, check: () => boolean): Promise<void> {
    await until(
      async () => {
        if ((this.#left.get("quorum-0")?.length ?? 0) < 10) this.#write(10);
        await this.send();
        return check();
      },
      { what, timeoutMs: 60_000 },
    );
  }

  async send(): Promise<void> {
    const batch = [...this.#left.values()].flatMap((messages) => messages.slice(0, 10));
    const results = await this.#publisher.publish(batch, never).catch(() => undefined);
    for (const [i, result] of results?.entries() ?? []) {
      if (result.status === "unavailable") this.routesOut.add(result.route);
      if (result.status === "failed" || result.status === "rejected") this.blamed.push(result);
      if (result.status !== "published") continue;
      const { key } = batch[i]!;
      this.#left.get(key ?? "")?.shift();
      this.#sent[key?.split("-")[0] as Queue]++;
    }
  }

  #write(count: number): void {
    for (const end = this.each + count; this.each < end; this.each++) {
      for (const key of keys) this.#left.get(key)?.push(sample(EXCHANGE, this.each, { key }));
    }
  }
}

describe.skipIf(slot === undefined || slot.skipped)("a RabbitMQ cluster of three nodes", { timeout: 300_000 }, () => {
  it("loses, reorders and blames nothing when the node of a classic queue dies, and a queue is full", async () => {
    const { nodes } = slot!.server;
    const [a, b, c] = nodes;
    await makeQueues(nodes);
    expect(await slot!.server.homeOf("classic")).toBe(a);
    const recovery = { initialDelay: 20, maxDelay: 200 };
    const connection = await connect(rabbitmqUrls([b.url, c.url, a.url]), { recovery });
    await using observer = await RabbitmqObserver.to(b.url);
    const got: Record<Queue, GetMessage[]> = { classic: [], quorum: [], full: [] };
    const publisher = createRabbitmqPublisher({ connection, route });
    const sender = new Sender(publisher);
    try {
      await sender.until("the first messages", () => sender.sent.classic > 50 && sender.sent.full === 20);
      for (let round = 0; round < 2; round++) {
        const killing = sleep(50).then(() => a.kill());
        let killed = false;
        void killing.then(() => (killed = true));
        await sender.until("the kill", () => killed);
        await takeAll(observer, "full", got.full);
        const before = sender.sent;
        await sender.until(
          "the messages of the routes that are there",
          () => sender.sent.quorum > before.quorum + 200 && sender.sent.full >= before.full + 20,
        );
        const { classic } = sender.sent;
        expect(classic).toBe(before.classic);
        await a.restart();
        await sender.until("the messages of the route that is back", () => sender.sent.classic > classic + 50);
      }
      expect(sender.routesOut).toContain(`${EXCHANGE}/classic`);
      expect(sender.routesOut).toContain(`${EXCHANGE}/full`);
      // The node that the publisher is connected to: that is an outage of all, and it goes to another node.
      await b.kill();
      const { quorum } = sender.sent;
      await sender.until("messages by way of another node", () => sender.sent.quorum > quorum + 50);
      await b.restart();
      const emptied = (async () => {
        while (sender.left > 0) {
          await takeAll(observer, "full", got.full);
          await sleep(10);
        }
      })();
      await until(async () => (await sender.send(), sender.left === 0), { what: "the rest", timeoutMs: 120_000 });
      await emptied;
      for (const queue of QUEUES) {
        const wanted = sender.each * KEYS_EACH;
        await until(async () => (await takeAll(observer, queue, got[queue])) >= wanted, { what: queue });
        const messages = got[queue].map(openFromRabbitmq);
        const all = Array.from({ length: sender.each }, (_, n) => n);
        for (const key of keysOf(queue)) expect([...new Set(payloadsOf(messages, key))], key).toEqual(all);
      }
    } finally {
      await publisher.close?.();
      await connection.close();
    }
    expect(sender.blamed).toEqual([]);
    process.stderr.write(`${sender.each * keys.length} messages, out were: ${[...sender.routesOut].join(", ")}\n`);
  });

  it("waits for a queue whose node is down also when it has just been started, and knows one that never was", async () => {
    const { nodes } = slot!.server;
    const [a, b] = nodes;
    await makeQueues(nodes);
    await a.kill();
    try {
      await using link = await testConnection(b.url);
      const { connection } = link;
      const fresh = createRabbitmqPublisher({ connection, route });
      const message = sample(EXCHANGE, 1, { key: "classic-0" });
      const [byExchange] = await fresh.publish([message], never);
      expect(byExchange).toMatchObject({ status: "unavailable", route: `${EXCHANGE}/classic` });
      for (const unroutable of ["wait", "reject"] as const) {
        const byName = createRabbitmqPublisher({
          connection,
          unroutable,
          route: ({ key }) => ({ exchange: "", routingKey: key === "classic-0" ? "classic" : "never" }),
        });
        const results = await byName.publish([message, sample(EXCHANGE, 1, { key: "other" })], never);
        expect(results[0]).toMatchObject({ status: "unavailable", route: "queue classic" });
        expect(results[1]).toMatchObject({ status: "rejected", error: { code: "permanent" } });
        await byName.close?.();
      }
      const events: { type: string; error?: string }[] = [];
      const subscriber = createRabbitmqSubscriber({
        connection,
        queue: "classic",
        declare: { queueType: "classic" },
        onEvent: (event) => events.push(event),
      });
      const starting = subscriber.start("c", async () => ({ status: "done" }));
      starting.catch(() => undefined);
      const { error } = await until(() => events.find(({ type }) => type === "outage"), { what: "an outage" });
      expect(error).toContain("down or inaccessible");
      expect(error).not.toContain("declare");
      await subscriber.stop();
      await fresh.close?.();
    } finally {
      await a.restart();
    }
  });

  it("lets other routes go on while a quorum queue has no majority", async () => {
    const { nodes } = slot!.server;
    const [a, b, c] = nodes;
    await makeQueues(nodes);
    await using link = await testConnection(b.url);
    const publisher = createRabbitmqPublisher({ connection: link.connection, route, timeoutMs: 2000 });
    const messages = (n: number): Message[] =>
      ["quorum-0", "full-0", "quorum-1"].map((key) => sample(EXCHANGE, n, { key }));
    expect(await publisher.publish(messages(0), never)).toEqual(messages(0).map(() => ({ status: "published" })));
    for (const node of [a, c]) await node.saveTopology();
    await Promise.all([a.kill(), c.kill()]);
    try {
      const out = { status: "unavailable", route: `${EXCHANGE}/quorum` };
      const expected = [out, { status: "published" }, out];
      // Right after the kill the server may be busy with the dead nodes.
      await until(
        async () => {
          const results = await publisher.publish(messages(1), never).catch(() => []);
          return results[1]?.status === "published" && results[0]?.status === "unavailable";
        },
        { what: "an answer", timeoutMs: 60_000, intervalMs: 1000 },
      );
      const onResult = (): void => undefined;
      const startedAt = performance.now();
      for (let n = 2; n < 10; n++) {
        expect(
          await publisher.publish(messages(n), never, { kind: "new", mayBegin: () => true, onResult }),
        ).toMatchObject(expected);
      }
      expect(performance.now() - startedAt).toBeLessThan(2000);
    } finally {
      await Promise.all([a.restart(), c.restart()]);
    }
    await until(
      async () => {
        const waiting = [sample(EXCHANGE, 10, { key: "quorum-0" })];
        const results = await publisher.publish(waiting, never, {
          kind: "retry",
          mayBegin: () => true,
          onResult: () => undefined,
        });
        return results[0]?.status === "published";
      },
      { what: "the quorum queue to take messages again", timeoutMs: 60_000, intervalMs: 500 },
    );
    const again = await publisher.publish(messages(11), never, {
      kind: "new",
      mayBegin: () => true,
      onResult: () => undefined,
    });
    expect(again).toEqual(again.map(() => ({ status: "published" })));
    await publisher.close?.();
  });

  it.skipIf(!hasPostgres())(
    "through a relay: no attempt is counted, other routes flow, and events name the route",
    async () => {
      const { nodes } = slot!.server;
      const [a, b] = nodes;
      await makeQueues(nodes);
      await using link = await testConnection(b.url);
      await using database = await outboxDatabase();
      const publisher = createRabbitmqPublisher({ connection: link.connection, route });
      const events: { type: string; route?: string }[] = [];
      const relay = createRelay({
        store: database.store,
        name: "to-rabbitmq",
        publisher,
        maxAttempts: 2,
        maintenance: false,
        onEvent: (event) => void events.push(event),
      });
      let next = 0;
      const write = async (count: number): Promise<void> => {
        for (const last = next + count; next < last; next++) {
          await database.enqueue(keys.map((key): Numbered => ({ key, n: next })));
        }
      };
      const got: Record<Queue, GetMessage[]> = { classic: [], quorum: [], full: [] };
      await using observer = await RabbitmqObserver.to(b.url);
      await relay.start();
      try {
        await write(20);
        await until(async () => (await takeAll(observer, "quorum", got.quorum)) >= 20 * KEYS_EACH, {
          what: "the first",
        });
        await a.kill();
        await write(30);
        // The classic queue is away and the other one is full: the third gets all of its messages.
        await until(async () => (await takeAll(observer, "quorum", got.quorum)) >= 50 * KEYS_EACH, {
          what: "the messages of the route that is there",
          timeoutMs: 60_000,
        });
        await sleep(3000);
        await a.restart();
        await until(
          async () => {
            for (const queue of QUEUES) await takeAll(observer, queue, got[queue]);
            return QUEUES.every((queue) => got[queue].length >= 50 * KEYS_EACH);
          },
          { what: "all messages", timeoutMs: 90_000, intervalMs: 100 },
        );
        await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
      } finally {
        await relay.stop();
        await publisher.close?.();
      }
      for (const queue of QUEUES) {
        const messages = got[queue].map(openFromRabbitmq);
        const all = Array.from({ length: next }, (_, n) => n);
        for (const key of keysOf(queue)) {
          const numbers = payloadsOf(messages, key).map((payload) => (payload as Numbered).n);
          expect([...new Set(numbers)], key).toEqual(all);
        }
      }
      expect(events.filter(({ type }) => type === "retry" || type === "dead")).toEqual([]);
      for (const name of ["route_out", "route_back"]) {
        const routes = events.filter(({ type }) => type === name).map((event) => event.route);
        expect(new Set(routes)).toEqual(new Set([`${EXCHANGE}/classic`, `${EXCHANGE}/full`]));
      }
      const infos = await database.store.admin.find({ stream: "orders", limit: 10_000 });
      expect(infos.filter(({ attempts, status }) => attempts !== 1 || status !== "published")).toEqual([]);
      expect(await database.value("select count(*)::int from txbox.dead")).toBe(0);
    },
  );
});
