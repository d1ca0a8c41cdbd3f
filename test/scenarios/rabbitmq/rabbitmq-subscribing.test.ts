import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { ConfirmChannel, GetMessage, Options } from "amqplib";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRabbitmqSubscriber, type RabbitmqSubscriberOptions } from "../../../src/brokers/rabbitmq/index.ts";
import type { SubscriberEvent } from "../../../src/core/events.ts";
import type { Handle, HandleResult, Subscriber } from "../../../src/core/contracts.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

const DONE: HandleResult = { status: "done" };

describe.skipIf(slot.skipped)("subscribing to RabbitMQ", () => {
  let links: TestConnection[];
  let subscribers: Subscriber[];
  let channel: ConfirmChannel;
  let queue: string;
  let events: SubscriberEvent[];

  beforeEach(async () => {
    links = [await testConnection(slot.server.url)];
    subscribers = [];
    events = [];
    channel = await links[0]!.connection.createConfirmChannel();
    queue = `q-${randomBytes(5).toString("hex")}`;
  });
  afterEach(async () => {
    for (const subscriber of subscribers) await subscriber.stop();
    for (const link of links) await link[Symbol.asyncDispose]();
  });

  /** With a connection of its own, as another process has it. */
  async function subscriberWith(options: Partial<RabbitmqSubscriberOptions> = {}): Promise<Subscriber> {
    const link = await testConnection(slot.server.url);
    links.push(link);
    const subscriber = createRabbitmqSubscriber({
      connection: link.connection,
      queue,
      backoff: { baseMs: 5, maxMs: 20 },
      onEvent: (event) => events.push(event),
      ...options,
    });
    subscribers.push(subscriber);
    return subscriber;
  }

  async function send(content: Buffer | string, options: Options.Publish = {}): Promise<void> {
    channel.sendToQueue(queue, Buffer.from(content), { persistent: true, ...options });
    await channel.waitForConfirms();
  }

  async function deadLetter(): Promise<GetMessage> {
    return until(() => channel.get(`${queue}.dead`, { noAck: true }), { what: "a dead letter" });
  }

  function recorder(judge: (message: IncomingMessage) => HandleResult | Promise<HandleResult> = () => DONE) {
    const got: string[] = [];
    const handle: Handle = async (message) => {
      got.push(Buffer.from(message.body as Uint8Array).toString());
      return judge(message);
    };
    const count = (n: number): Promise<true> => until(() => got.length >= n, { what: `${n} deliveries` });
    return { got, handle, count };
  }

  it("a dead letter goes to the dead letters alone, also when its sender named others for a copy", async () => {
    const subscriber = await subscriberWith({ declare: true });
    const { got, handle, count } = recorder((message) => ({
      status: "rejected",
      error: new Error(`no ${message.id}`),
    }));
    await subscriber.start("c", handle);
    await send("poison", { messageId: "m1", CC: [queue], headers: { plain: "x" } });
    const { properties } = await deadLetter();
    expect(properties.headers).toMatchObject({ plain: "x", "dead-cc": [queue] });
    await send("next");
    await count(2);
    expect(got).toEqual(["poison", "next"]);
  });

  it("a copy that its sender asked for does not count as a dead letter", async () => {
    const subscriber = await subscriberWith({ declare: true });
    const { handle, count } = recorder(() => ({ status: "rejected", error: new Error("no") }));
    await subscriber.start("c", handle);
    const other = await channel.assertQueue("", { exclusive: true });
    await channel.deleteQueue(`${queue}.dead`);
    await send("poison", { CC: [other.queue] });
    await count(1);
    await until(() => events.find(({ type }) => type !== "recovered"), { what: "a verdict" });
    expect(events[0]).toMatchObject({ type: "outage", error: expect.stringContaining("leads nowhere") });
    await channel.assertQueue(`${queue}.dead`, { durable: true });
    expect((await deadLetter()).content.toString()).toBe("poison");
    expect((await channel.checkQueue(other.queue)).messageCount).toBe(1);
  });

  it("a missing queue is named, with the option that creates it; so is a missing one for dead letters", async () => {
    const subscriber = await subscriberWith();
    const start = (): Promise<void> => subscriber.start("c", async () => DONE);
    const fix = expect.stringContaining("declare: true");
    await expect(start()).rejects.toMatchObject({ code: "not_found", field: "queue", fix });
    await expect(start()).rejects.toThrow(`"${queue}"`);
    await channel.assertQueue(queue);
    await expect(start()).rejects.toMatchObject({ code: "not_found", field: "deadLetter", fix });
    await expect(start()).rejects.toThrow(`"${queue}.dead"`);
    expect(events).toEqual([]);
    await channel.assertQueue(`${queue}.dead`);
    await start();
  });

  it("declares quorum queues and bindings, and does not touch what exists with other settings", async () => {
    const exchange = `${queue}.exchange`;
    const subscriber = await subscriberWith({ declare: { bind: { [exchange]: ["order.#", "invoice.*"] } } });
    const { got, handle, count } = recorder();
    await subscriber.start("c", handle);
    for (const key of ["order.line.added", "invoice.sent", "other"]) channel.publish(exchange, key, Buffer.from(key));
    await channel.waitForConfirms();
    await count(2);
    const type = await slot.server.ctl("list_queues", "name", "type", "-q");
    expect(type.split("\n").filter((line) => line.startsWith(queue))).toEqual(
      expect.arrayContaining([`${queue}\tquorum`, `${queue}.dead\tquorum`]),
    );
    expect(got).toEqual(["order.line.added", "invoice.sent"]);
    const other = await subscriberWith({ declare: { queueType: "classic" } });
    await expect(other.start("c", handle)).rejects.toMatchObject({ code: "invalid_option", field: "declare" });
  });

  it("notices that its queue was deleted, says so, and declares it anew", async () => {
    const subscriber = await subscriberWith({ declare: true });
    const { handle, count } = recorder();
    await subscriber.start("c", handle);
    await channel.deleteQueue(queue);
    await until(() => events.some(({ type }) => type === "recovered"), { what: "recovery" });
    expect(events[0]).toMatchObject({ type: "outage", error: expect.stringContaining(`"${queue}" was deleted`) });
    await send("after");
    await count(1);
  });

  it("makes a binding anew that the server has lost, when it connects again", async () => {
    const exchange = `${queue}.exchange`;
    const subscriber = await subscriberWith({ declare: { bind: { [exchange]: "order.#" } } });
    const { got, handle, count } = recorder();
    await subscriber.start("c", handle);
    await channel.unbindQueue(queue, exchange, "order.#");
    links.at(-1)?.cut();
    await until(() => events.some(({ type }) => type === "recovered"), { what: "recovery" });
    channel.publish(exchange, "order.created", Buffer.from("after"));
    await channel.waitForConfirms();
    await count(1);
    expect(got).toEqual(["after"]);
  });

  it.skipIf(!hasPostgres())("bad messages go to the dead letters as they came, and the inbox goes on", async () => {
    await using database = await outboxDatabase();
    const seen: unknown[] = [];
    const inbox = createInbox({ store: database.store, consumer: "c" });
    inbox.on("known", async (_, { payload }) => void seen.push(payload));
    await inbox.start(await subscriberWith({ declare: true }));
    const bad: [string, Buffer, Options.Publish][] = [
      ["no JSON", Buffer.from("{"), { type: "known" }],
      ["no UTF-8", Buffer.from([0x22, 0xff, 0xfe, 0x22]), { type: "known", contentType: "application/json" }],
      ["ten megabytes", Buffer.alloc(10_000_000, 0x7b), { type: "known", headers: { tenant: "t", deep: { n: [1] } } }],
    ];
    for (const [, content, options] of bad) {
      await send(content, options);
      const letter = await deadLetter();
      expect(Buffer.compare(letter.content, content)).toBe(0);
      expect(letter.properties.headers).toMatchObject({ ...options.headers, "dead-by": "c", "dead-attempts": "1" });
      expect(letter.properties.headers?.["dead-error"]).toContain("not valid JSON");
      expect(letter.properties.contentType).toBe(options.contentType);
    }
    const large = JSON.stringify("x".repeat(10_000_000));
    await send(large, { type: "known" });
    await send("1", { type: "known" });
    await send("2", { messageId: "m", type: "known" });
    await send("2", { messageId: "m", type: "known" });
    await until(() => seen.length >= 3, { what: "what is fine" });
    await inbox.stop();
    const sizes = seen.map((payload) => (typeof payload === "string" ? payload.length : payload));
    expect(sizes).toHaveLength(3);
    expect(new Set(sizes)).toEqual(new Set([1, 2, 10_000_000]));
  });

  it("a message that subscribers die of becomes a dead letter", async () => {
    const options = { declare: true, maxDeliveries: 3 };
    const end = Promise.withResolvers<HandleResult>();
    const { got, handle, count } = recorder(() => end.promise);
    for (let deaths = 0; deaths < 3; deaths++) {
      await (await subscriberWith(options)).start("c", handle);
      if (deaths === 0) await send("killer", { messageId: "k" });
      await count(deaths + 1);
      // All that the server sees of a death.
      await links.pop()?.[Symbol.asyncDispose]();
    }
    await (await subscriberWith(options)).start("c", handle);
    const letter = await deadLetter();
    expect(letter.content.toString()).toBe("killer");
    expect(letter.properties.headers).toMatchObject({ "dead-attempts": "3" });
    expect(letter.properties.headers?.["dead-error"]).toContain("never finished");
    expect(got).toHaveLength(3);
    end.resolve(DONE);
  });

  it("connections that break while the process lives are no deaths", async () => {
    const subscriber = await subscriberWith({ declare: true, maxDeliveries: 3 });
    const { got, handle, count } = recorder(async () => {
      await sleep(30);
      return got.length > 8 ? DONE : { status: "unavailable", error: new Error("the database is out") };
    });
    await subscriber.start("c", handle);
    await send("patient", { messageId: "p" });
    for (let cuts = 1; cuts <= 8; cuts++) {
      await count(cuts);
      links[1]?.cut();
    }
    await count(9);
    await until(async () => (await channel.checkQueue(queue)).messageCount === 0, { what: "the end" });
    await sleep(50);
    expect(events.filter(({ type }) => type === "dead")).toEqual([]);
  });

  it("does not handle a message beside itself when its connection breaks", async () => {
    const subscriber = await subscriberWith({ declare: true });
    let [running, most] = [0, 0];
    const { handle, count } = recorder(async () => {
      most = Math.max(most, ++running);
      await sleep(600);
      running--;
      return DONE;
    });
    await subscriber.start("c", handle);
    await send("slow", { messageId: "s" });
    await count(1);
    links[1]?.cut();
    await count(2);
    await until(async () => (await channel.checkQueue(queue)).messageCount === 0 && running === 0, { what: "the end" });
    expect(most).toBe(1);
  });

  it("hands over to the subscriber that stands by, in order, when it is stopped", async () => {
    const options = { declare: true, prefetch: 20, concurrency: 2 };
    const [one, two] = [await subscriberWith(options), await subscriberWith(options)];
    const order: string[] = [];
    const handler =
      (who: string): Handle =>
      async ({ body }) => {
        await sleep(2);
        order.push(`${who}${Buffer.from(body as Uint8Array).toString()}`);
        return DONE;
      };
    await one.start("c", handler("a"));
    await two.start("c", handler("b"));
    const headers = (n: number): object => ({ "txbox-id": `m${n}`, "txbox-key": "k", "txbox-stream": "s" });
    for (let n = 0; n < 100; n++) channel.sendToQueue(queue, Buffer.from(String(n)), { headers: headers(n) });
    await channel.waitForConfirms();
    await until(() => order.length >= 10, { what: "the first to work" });
    await one.stop();
    await until(() => order.length >= 100, { what: "the second to end it" });
    expect(order.map((entry) => Number(entry.slice(1)))).toEqual(Array.from({ length: 100 }, (_, n) => n));
    const handover = order.findIndex((entry) => entry.startsWith("b"));
    expect(handover).toBeGreaterThanOrEqual(10);
    expect(order.slice(handover).every((entry) => entry.startsWith("b"))).toBe(true);
  });

  it("puts dead letters into an exchange, and keeps them while that leads nowhere", async () => {
    const exchange = `${queue}.morgue`;
    const subscriber = await subscriberWith({ declare: true, deadLetter: { exchange }, concurrency: 1 });
    const { got, handle, count } = recorder(({ id }) =>
      id === "bad" ? { status: "rejected", error: new Error("no") } : DONE,
    );
    await subscriber.start("c", handle);
    await send("bad", { messageId: "bad" });
    await send("fine");
    await count(2);
    await until(() => events.some(({ type }) => type === "outage"), { what: "the event" });
    expect(events[0]).toMatchObject({ error: expect.stringContaining(exchange) });
    await channel.assertQueue(`${queue}.dead`);
    await channel.bindQueue(`${queue}.dead`, exchange, "#");
    expect((await deadLetter()).content.toString()).toBe("bad");
    expect(got).toEqual(["bad", "fine"]);
    await until(() => events.some(({ type }) => type === "dead"), { what: "the event" });
  });

  it("waits for a server that is out when it is started, and stops while it waits", async () => {
    const link = links[0]!;
    const subscriber = createRabbitmqSubscriber({
      connection: link.connection,
      queue,
      declare: true,
      onEvent: (event) => events.push(event),
    });
    slot.server.pause();
    const starting = subscriber.start("c", async () => DONE);
    try {
      await until(() => events.length > 0, { what: "the outage" });
      expect(events[0]).toMatchObject({ type: "outage" });
      await subscriber.stop();
      await starting;
    } finally {
      slot.server.resume();
    }
  });
});
