import { randomBytes } from "node:crypto";
import { connect, type ConfirmChannel, type GetMessage } from "amqplib";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  createRabbitmqSubscriber,
  rabbitmqUrls,
  type RabbitmqPublisherOptions,
} from "../../../src/brokers/rabbitmq/index.ts";
import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { sample, samples } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { freePort } from "../../harness/free-port.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";
import { publisherScene, type PublisherScene } from "../../support/rabbitmq-publishers.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

const never = new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

describe.skipIf(slot.skipped)("a route of RabbitMQ", () => {
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

  /** Straight to the queue of this name. */
  const toQueue = (queue: string): Partial<RabbitmqPublisherOptions> => ({
    route: () => ({ exchange: "", routingKey: queue }),
  });

  async function bound(queue: string, queueArguments: object = {}): Promise<void> {
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

  const payloads = (messages: readonly GetMessage[]): unknown[] =>
    messages.map(({ content }): unknown => JSON.parse(content.toString()));

  async function one(publisher: Publisher, message: Message): Promise<PublishResult> {
    const [result] = await publisher.publish([message], never);
    return result ?? { status: "held" };
  }

  describe("with an exchange that is there and no queue behind it", () => {
    it("is out by default, says what to do, and works once a queue is bound", async () => {
      await channel.assertExchange(stream, "topic");
      const publisher = publisherWith();
      const batch = samples(stream, ["a", "b"], 2).map((message) => ({ ...message, type: "order_created" }));
      const results = await publisher.publish(batch, never);
      expect(statuses(results)).toEqual(["unavailable", "unavailable", "held", "held"]);
      expect(results[0]).toMatchObject({ route: `${stream}/order.created`, error: { code: "unavailable" } });
      expect((results[0] as { error: Error }).error.message).toMatch(
        new RegExp(`No queue takes.*${stream}.*order\\.created.*Bind a queue`),
      );
      await bound(stream);
      expect(statuses(await publisher.publish(batch, never))).toEqual(batch.map(() => "published"));
    });

    it('kills its messages at once with unroutable: "reject", unless it has worked', async () => {
      await bound(stream);
      await channel.unbindQueue(stream, stream, "#");
      await channel.bindQueue(stream, stream, "order.*");
      const publisher = publisherWith({ unroutable: "reject" });
      expect(await one(publisher, sample(stream, 1, { type: "order_created" }))).toEqual({ status: "published" });
      expect(await one(publisher, sample(stream, 2, { type: "invoice_sent" }))).toMatchObject({
        status: "rejected",
        error: { code: "permanent", field: "routingKey" },
      });
      await channel.unbindQueue(stream, stream, "order.*");
      expect(await one(publisher, sample(stream, 3, { type: "order_created" }))).toMatchObject({
        status: "unavailable",
        route: `${stream}/order.created`,
      });
    });
  });

  it.each(["wait", "reject"] as const)(
    "whose queue is deleted waits until it is made anew, with unroutable: %s",
    async (unroutable) => {
      const [lost, other] = [`${stream}.lost`, `${stream}.other`];
      await bound(lost);
      await bound(other);
      const publisher = publisherWith({ unroutable });
      await publisher.publish([...samples(lost, ["a", "b"], 1), sample(other, 0)], never);
      await takeAll(lost);
      await channel.deleteQueue(lost);
      const left = samples(lost, ["a", "b"], 5);
      for (let i = 0; i < 20; i++) {
        const results = await publisher.publish([...left, sample(other, i)], never);
        const held = Array.from({ length: 8 }, () => "held");
        expect(statuses(results)).toEqual(["unavailable", "unavailable", ...held, "published"]);
      }
      await bound(lost);
      expect(new Set(statuses(await publisher.publish(left, never)))).toEqual(new Set(["published"]));
      const got = await takeAll(lost);
      expect(payloads(got)).toEqual([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
      expect(await takeAll(other)).toHaveLength(21);
    },
  );

  it("to a queue by its name: one that never was rejects, one that was there waits", async () => {
    const publisher = publisherWith(toQueue(stream));
    expect(await one(publisher, sample("any", 1))).toMatchObject({ status: "rejected", error: { code: "permanent" } });
    await channel.assertQueue(stream);
    expect(await one(publisher, sample("any", 2))).toEqual({ status: "published" });
    await channel.deleteQueue(stream);
    const out = await one(publisher, sample("any", 3));
    expect(out).toMatchObject({ status: "unavailable", route: `queue ${stream}` });
  });

  it("whose exchange is deleted waits; with declare it is made anew", async () => {
    await bound(stream);
    const [plain, declaring] = [publisherWith(), publisherWith({ declare: true })];
    for (const publisher of [plain, declaring]) {
      expect(await one(publisher, sample(stream, 0))).toEqual({ status: "published" });
    }
    await channel.deleteExchange(stream);
    for (let i = 0; i < 3; i++) {
      expect(await one(plain, sample(stream, 1))).toMatchObject({ status: "unavailable", route: `${stream}/#` });
    }
    // It finds out by its first message, and creates it with the next.
    await one(declaring, sample(stream, 1));
    await until(async () => (await one(declaring, sample(stream, 1))).status === "unavailable", { what: "an answer" });
    await channel.checkExchange(stream);
    await channel.bindQueue(stream, stream, "#");
    expect(await one(declaring, sample(stream, 2))).toEqual({ status: "published" });
    expect(await one(plain, sample(stream, 3))).toEqual({ status: "published" });
  });

  it("that the user may not write to waits, and no message is blamed", async () => {
    await bound(stream);
    await bound(`${stream}.free`);
    const user = `u-${randomBytes(4).toString("hex")}`;
    await slot.server.ctl("add_user", user, "secret");
    await slot.server.ctl("set_permissions", user, ".*", `^${stream}\\.free$`, ".*");
    await using theirs = await testConnection(slot.server.url.replace("guest:guest", `${user}:secret`));
    const publisher = publisherWith({ connection: theirs.connection });
    const batch = [sample(stream, 1), sample(`${stream}.free`, 2)];
    const results = await publisher.publish(batch, never);
    expect(statuses(results)).toEqual(["unavailable", "published"]);
    expect(results[0]).toMatchObject({ route: `${stream}/#`, error: { message: expect.stringContaining("access") } });
    await slot.server.ctl("set_permissions", user, ".*", ".*", ".*");
    // The server remembers permissions of a channel for a while.
    theirs.cut();
    await until(async () => (await one(publisher, sample(stream, 3)).catch(() => undefined))?.status === "published", {
      what: "publishing with the permission",
      intervalMs: 50,
    });
  });

  describe("with a queue that refuses what is too much", () => {
    const limits = { "x-overflow": "reject-publish" };

    it("waits while it is full, however often it is tried, and others flow", async () => {
      await bound(stream, { ...limits, "x-max-length": 2 });
      await bound(`${stream}.other`);
      const publisher = publisherWith();
      const batch = samples(stream, ["a", "b", "c", "d"], 1);
      const first = await publisher.publish(batch, never);
      expect(statuses(first).toSorted()).toEqual(["published", "published", "unavailable", "unavailable"]);
      const left = batch.filter((_, i) => first[i]?.status !== "published");
      for (let i = 0; i < 50; i++) {
        const results = await publisher.publish([...left, sample(`${stream}.other`, i)], never);
        expect(statuses(results)).toEqual(["unavailable", "unavailable", "published"]);
        expect(results[0]).toMatchObject({ route: `${stream}/sampled` });
      }
      await takeAll(stream);
      expect(statuses(await publisher.publish(left, never))).toEqual(["published", "published"]);
    });

    it("counts attempts of a message that is larger than the queue takes, once smaller ones have passed it again and again", async () => {
      await bound(stream, { ...limits, "x-max-length-bytes": 1000 });
      const publisher = publisherWith();
      const large = sample(stream, "x".repeat(2000), { key: "large" });
      const said: PublishResult[] = [];
      for (let i = 0; i < 10; i++) {
        const results = await publisher.publish([large, sample(stream, i)], never);
        expect(results[1]).toEqual({ status: "published" });
        said.push(results[0] ?? { status: "held" });
        await takeAll(stream);
      }
      expect(new Set(statuses(said.slice(0, 5)))).toEqual(new Set(["unavailable"]));
      expect(statuses(said.slice(-4))).toEqual(["failed", "failed", "failed", "failed"]);
      const message = expect.stringMatching(/2002 bytes.*x-max-length-bytes/);
      expect(said.at(-1)).toMatchObject({ error: { code: "payload_too_large", message } });
    });

    it("counts none while nothing passes, nor of a size that has passed before", async () => {
      await bound(stream, { ...limits, "x-max-length-bytes": 1000 });
      const publisher = publisherWith();
      const body = JSON.stringify("x".repeat(700));
      expect(await one(publisher, sample(stream, 0, { body }))).toEqual({ status: "published" });
      const same = sample(stream, 0, { body, key: "same" });
      for (let i = 0; i < 20; i++) {
        const results = await publisher.publish([same, sample(stream, i)], never);
        expect(statuses(results)).toEqual(["unavailable", "published"]);
      }
      const larger = sample(stream, "x".repeat(2000), { key: "larger" });
      for (let i = 0; i < 20; i++) expect(await one(publisher, larger)).toMatchObject({ status: "unavailable" });
    });

    it("counts none of the largest while smaller ones are refused as well: the queue is full", async () => {
      await bound(stream, { ...limits, "x-max-length": 2 });
      const publisher = publisherWith();
      const large = sample(stream, "x".repeat(2000), { key: "large" });
      for (let i = 0; i < 20; i++) {
        // There is always room for two of them, and the large one comes too late.
        const results = await publisher.publish([...samples(stream, ["a", "b", "c"], 1), large], never);
        expect(statuses(results)).toEqual(["published", "published", "unavailable", "unavailable"]);
        await takeAll(stream);
      }
      expect(await one(publisher, large)).toEqual({ status: "published" });
    });

    it("is asked whether it is empty, if its name is known", async () => {
      await channel.assertQueue(stream, { arguments: { ...limits, "x-max-length-bytes": 1000 } });
      const publisher = publisherWith(toQueue(stream));
      const large = sample("any", "x".repeat(2000));
      const said: string[] = [];
      for (let i = 0; i < 7; i++) said.push((await one(publisher, large)).status);
      expect(said).toEqual([...Array.from({ length: 4 }, () => "unavailable"), "failed", "failed", "failed"]);
      expect(await one(publisher, sample("any", "x".repeat(600)))).toEqual({ status: "published" });
      // Not empty any more: there may be room later.
      for (let i = 0; i < 3; i++) {
        await one(publisher, large);
        expect(await one(publisher, large)).toMatchObject({ status: "unavailable" });
      }
    });
  });

  it("tells of each message while the batch is under way, the same as at the end", async () => {
    await bound(stream);
    await channel.assertExchange(`${stream}.none`, "topic");
    const publisher = publisherWith();
    const batch = [...samples(stream, ["a", "b"], 2), sample(`${stream}.none`, 1)];
    for (const kind of ["new", "retry"] as const) {
      const told = new Map<number, unknown>();
      const onResult = (i: number, result: unknown): void => void told.set(i, result);
      const results = await publisher.publish(batch, never, { kind, mayBegin: () => true, onResult });
      expect(statuses(results)).toEqual(["published", "published", "published", "published", "unavailable"]);
      expect(told).toEqual(new Map(results.entries()));
    }
  });

  it("of several nodes: the connection goes to the next one when one is down", async () => {
    await bound(stream);
    const down = `amqp://guest:guest@127.0.0.1:${await freePort()}`;
    const recovery = { initialDelay: 10, maxDelay: 50, initialMaxRetries: 5 };
    const connection = await connect(rabbitmqUrls([down, `${slot.server.url}/%2f?heartbeat=30`]), { recovery });
    try {
      const publisher = publisherWith({ connection });
      expect(await one(publisher, sample(stream, 1))).toEqual({ status: "published" });
      await slot.server.ctl("close_all_connections", "an operator did it");
      await until(
        async () => (await one(publisher, sample(stream, 2)).catch(() => undefined))?.status === "published",
        {
          what: "publishing again",
        },
      );
    } finally {
      await connection.close();
    }
  });

  it("a subscriber that declares is not told to declare", async () => {
    const events: { type: string; error?: string }[] = [];
    const subscriber = createRabbitmqSubscriber({
      connection: link.connection,
      queue: stream,
      declare: true,
      maxAttempts: 1,
      onEvent: (event) => events.push(event),
    });
    await subscriber.start("c", async () => ({ status: "rejected", error: new Error("no") }));
    try {
      await channel.deleteQueue(`${stream}.dead`);
      channel.sendToQueue(stream, Buffer.from("poison"));
      const { error } = await until(() => events.find(({ type }) => type === "outage"), { what: "an outage" });
      expect(error).toContain("leads nowhere");
      expect(error).not.toContain("declare: true");
      await channel.assertQueue(`${stream}.dead`, { arguments: { "x-queue-type": "quorum" } });
      await until(async () => (await channel.checkQueue(`${stream}.dead`)).messageCount === 1, { what: "dead letter" });
    } finally {
      await subscriber.stop();
    }
  });
});
