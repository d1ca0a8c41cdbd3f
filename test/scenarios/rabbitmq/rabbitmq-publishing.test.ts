import { setTimeout as sleep } from "node:timers/promises";
import { connect, type ConfirmChannel, type GetMessage } from "amqplib";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  createRabbitmqPublisher,
  createRabbitmqSubscriber,
  type RabbitmqPublisherOptions,
} from "../../../src/brokers/rabbitmq/index.ts";
import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { sample, samples } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import type { TestConnection } from "../../support/rabbitmq-connection.ts";
import { publisherScene, type PublisherScene } from "../../support/rabbitmq-publishers.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

const never = new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

describe.skipIf(slot.skipped)("publishing to RabbitMQ", () => {
  let scene: PublisherScene;
  let link: TestConnection;
  let channel: ConfirmChannel;
  let stream: string;

  beforeEach(async () => {
    scene = await publisherScene(slot.server.url);
    ({ link, channel, stream } = scene);
  });
  afterEach(() => scene[Symbol.asyncDispose]());

  const publisherWith = (options?: Partial<RabbitmqPublisherOptions>): Publisher => scene.publisherWith(options);

  async function bound(queue: string, queueArguments: object = { "x-queue-type": "quorum" }): Promise<void> {
    await channel.assertExchange(queue, "topic");
    await channel.assertQueue(queue, { arguments: queueArguments });
    await channel.bindQueue(queue, queue, "#");
  }

  async function takeAll(queue: string): Promise<GetMessage[]> {
    const got: GetMessage[] = [];
    for (let one = await channel.get(queue, { noAck: true }); one !== false;) {
      got.push(one);
      one = await channel.get(queue, { noAck: true });
    }
    return got;
  }

  const ids = (messages: readonly GetMessage[]): unknown[] => messages.map(({ properties }) => properties.messageId);

  it("a missing exchange costs its own messages only, and the error names it and the option", async () => {
    await bound(stream);
    const publisher = publisherWith();
    const batch = [sample(stream, 1), sample(`${stream}.missing`, 2), sample(stream, 3, { key: "other" })];
    const results = await publisher.publish(batch, never);
    expect(statuses(results)).toEqual(["published", "rejected", "published"]);
    expect(results[1]).toMatchObject({ error: { code: "permanent", fix: expect.stringContaining("declare: true") } });
    expect((results[1] as { error: Error }).error.message).toContain(`"${stream}.missing"`);
    expect(ids(await takeAll(stream))).toEqual([batch[0]?.id, batch[2]?.id]);
  });

  it("declares exchanges if asked to", async () => {
    const publisher = publisherWith({ declare: true });
    await publisher.publish([sample(stream, 1)], never);
    await channel.checkExchange(stream);
  });

  it("an exchange that is deleted later takes no messages of other exchanges with it", async () => {
    await bound(stream);
    const doomed = `${stream}.doomed`;
    await bound(doomed);
    const publisher = publisherWith();
    const batch = (): Message[] => [
      ...samples(stream, ["a", "b", "c"], 20),
      sample(doomed, 1),
      ...samples(stream, ["d", "e", "f"], 20),
    ];
    expect(new Set(statuses(await publisher.publish(batch(), never)))).toEqual(new Set(["published"]));
    await takeAll(stream);
    await channel.deleteExchange(doomed);
    const again = batch();
    const results = await publisher.publish(again, never);
    // It was there a moment ago: its message waits.
    expect(results[60]).toMatchObject({ status: "unavailable", route: `${doomed}/#` });
    expect(results.filter(({ status }) => status === "published")).toHaveLength(120);
    const expected = again.filter((message) => message.stream === stream).map(({ id }) => id);
    expect(new Set(ids(await takeAll(stream)))).toEqual(new Set(expected));
  });

  it("finds the one message for which the server closes the channel, among many", async () => {
    await bound(stream);
    const inner = `${stream}.internal`;
    await channel.assertExchange(inner, "topic", { internal: true });
    const publisher = publisherWith({
      route: ({ type }) => ({ exchange: type === "forbidden" ? inner : stream, routingKey: type }),
    });
    const keys = Array.from({ length: 150 }, (_, i) => `k${i}`);
    const batch = samples(stream, keys, 2).with(77, sample(stream, 0, { key: "k77", type: "forbidden" }));
    const results = await publisher.publish(batch, never);
    expect(results[77]).toMatchObject({
      status: "unavailable",
      route: `${inner}/#`,
      error: { message: expect.stringContaining("internal") },
    });
    // The other one of its key was held back.
    expect(statuses(results).filter((status) => status !== "published")).toEqual(["unavailable", "held"]);
    expect(statuses(results)[227]).toBe("held");
    expect(new Set(ids(await takeAll(stream))).size).toBe(298);
  });

  describe("a queue that is full now and then", () => {
    /** Sends 40 messages of one key until all are out: what each attempt said, and what came in which order. */
    async function throughFullQueue(): Promise<{ said: string[][]; got: unknown[] }> {
      await bound(stream, { "x-max-length": 5, "x-overflow": "reject-publish" });
      const publisher = publisherWith({});
      const [said, got, acks]: [string[][], unknown[], Promise<void>[]] = [[], [], []];
      const consumer = await link.connection.createChannel();
      await consumer.prefetch(1);
      await consumer.consume(stream, (message) => {
        if (message === null) return;
        got.push(JSON.parse(message.content.toString()));
        acks.push(sleep(3).then(() => consumer.ack(message)));
      });
      let left = samples(stream, ["k"], 40);
      await until(
        async () => {
          const results = await publisher.publish(left, never);
          said.push(statuses(results));
          left = left.filter((_, i) => results[i]?.status !== "published");
          return left.length === 0;
        },
        { what: "all messages to go out", timeoutMs: 60_000, intervalMs: 5 },
      );
      await until(() => got.length >= 40, { what: "all messages to arrive" });
      await Promise.all(acks);
      await consumer.close();
      return { said, got };
    }

    /** Published up to the one that was refused; nothing after that has been sent. */
    const inOrder = (attempt: readonly string[]): boolean =>
      /^(published )*(unavailable (held )*)?$/.test(`${attempt.join(" ")} `);

    it("lets nothing of the key overtake", async () => {
      const { said, got } = await throughFullQueue();
      expect(said.filter((attempt) => !inOrder(attempt))).toEqual([]);
      expect(said.flat()).toContain("unavailable");
      expect(got).toEqual(Array.from({ length: 40 }, (_, i) => i));
    });
  });

  it("sends nothing to a server that blocks publishers, and goes on when it is well again", async () => {
    await bound(stream);
    const publisher = publisherWith({ timeoutMs: 700 });
    await slot.server.ctl("set_vm_memory_high_watermark", "0.000001");
    try {
      const [first] = await publisher.publish([sample(stream, 1)], never);
      expect(first).toMatchObject({ status: "unavailable", error: { message: expect.stringContaining("700 ms") } });
      await expect(publisher.publish([sample(stream, 2)], never)).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringContaining("blocks publishers"),
      });
    } finally {
      await slot.server.ctl("set_vm_memory_high_watermark", "0.4");
    }
    await until(
      async () => {
        const results = await publisher.publish([sample(stream, 3)], never).catch(() => []);
        return results[0]?.status === "published";
      },
      { what: "publishing again", intervalMs: 50 },
    );
  });

  it("says of what is given up at a stop that it was the stop", async () => {
    await bound(stream);
    const publisher = publisherWith();
    await publisher.publish([sample(stream, 1)], never);
    const stop = new AbortController();
    slot.server.pause();
    try {
      const publishing = publisher.publish([sample(stream, 2)], stop.signal);
      await sleep(50);
      stop.abort(new Error("the stop has reached its deadline"));
      const message = "Given up: the stop has reached its deadline";
      expect(await publishing).toMatchObject([{ status: "unavailable", error: { message } }]);
    } finally {
      slot.server.resume();
    }
  });

  it("goes on after the server has closed every connection", async () => {
    await bound(stream);
    const publisher = publisherWith();
    await publisher.publish([sample(stream, 1)], never);
    await slot.server.ctl("close_all_connections", "an operator did it");
    await until(
      async () => {
        const results = await publisher.publish([sample(stream, 2)], never).catch(() => []);
        return results[0]?.status === "published";
      },
      { what: "publishing again", intervalMs: 20 },
    );
  });

  it.skipIf(!hasPostgres())("takes the dead letters of a relay, with their errors in headers", async () => {
    await channel.assertExchange("orders", "topic");
    await channel.assertQueue(stream, { arguments: { "x-queue-type": "quorum" } });
    await using database = await outboxDatabase();
    await database.enqueue([{ key: "k", n: 1 }]);
    const relay = createRelay({
      store: database.store,
      name: "to-rabbitmq",
      publisher: publisherWith({ unroutable: "reject" }),
      deadLetters: publisherWith({ route: () => ({ exchange: "", routingKey: stream }) }),
      maintenance: false,
    });
    expect(await relay.drainOnce()).toMatchObject({ published: 0, dead: 1 });
    const [letter] = await takeAll(stream);
    expect(JSON.parse(letter?.content.toString() ?? "")).toEqual({ key: "k", n: 1 });
    expect(letter?.properties.headers).toMatchObject({ "dead-by": "to-rabbitmq", "dead-attempts": "1" });
    expect(letter?.properties.headers?.["dead-error"]).toMatch(/No queue takes.*"orders".*"changed"/);
  });

  it("says once and clearly that the password is wrong", async () => {
    const url = slot.server.url.replace("guest:guest", "guest:wrong");
    const recovery = { initialDelay: 20, maxDelay: 100, waitForConnect: false };
    const connection = await connect(url, { recovery });
    const refusal = { code: "invalid_option", field: "connection", message: expect.stringContaining("password") };
    try {
      const publisher = createRabbitmqPublisher({ connection });
      await expect(publisher.publish([sample(stream, 1)], never)).rejects.toMatchObject(refusal);
      const events: unknown[] = [];
      const subscriber = createRabbitmqSubscriber({
        connection,
        queue: stream,
        onEvent: (event) => events.push(event),
      });
      await expect(subscriber.start("c", async () => ({ status: "done" }))).rejects.toMatchObject(refusal);
      expect(events).toEqual([]);
    } finally {
      await connection.close();
    }
    await expect(connect(url, { recovery: { initialMaxRetries: 0 } })).rejects.toThrow("ACCESS-REFUSED");
  });
});
