import { connect as connectTcp } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  createNatsPublisher,
  createNatsSubscriber,
  type NatsConnection as Client,
  type NatsSubscriberOptions,
} from "../../../src/brokers/nats/index.ts";
import type { SubscriberEvent } from "../../../src/core/events.ts";
import type { HandleResult, Subscriber } from "../../../src/core/contracts.ts";
import type { IncomingMessage, Message } from "../../../src/core/message.ts";
import { eventually } from "../../../src/testing/index.ts";
import { idsOf, payloadsOf, sample, samples } from "../../../src/testing/broker/sample-message.ts";
import { recorder } from "../../../src/testing/broker/subscriber-cases.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startNats } from "../../harness/start-nats.ts";
import { natsWorld, type NatsWorld, storedMessages } from "../../support/nats-world.ts";

const slot = await serverOrSkip("NATS", () => startNats({ owned: true }));
await slot.stop();

const DONE: HandleResult = { status: "done" };
/** Longer than any test may take: a test that waits for it fails. */
const FOR_EVER_MS = 120_000;
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
const isNak = (payload: unknown): boolean => String(payload).startsWith("-NAK");

describe.skipIf(slot.skipped)("consuming from JetStream", () => {
  let world: NatsWorld;
  let events: SubscriberEvent[];
  const running: Subscriber[] = [];

  beforeEach(async () => {
    world = await natsWorld("max_payload: 16MB");
    events = [];
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((subscriber) => subscriber.stop()));
    await world[Symbol.asyncDispose]();
  });

  async function subscriber(options: Partial<NatsSubscriberOptions> = {}): Promise<Subscriber> {
    const one = createNatsSubscriber({
      connection: await world.connect(),
      stream: world.stream,
      declare: true,
      ackWaitMs: FOR_EVER_MS,
      backoff: { baseMs: 5, maxMs: 20 },
      onEvent: (event) => void events.push(event),
      ...options,
    });
    running.push(one);
    return one;
  }

  async function send(messages: readonly Message[]): Promise<void> {
    const publisher = createNatsPublisher({ connection: world.direct });
    const results = await publisher.publish(messages, new AbortController().signal);
    expect(results.filter(({ status }) => status !== "published")).toEqual([]);
    await publisher.close?.();
  }

  const consumerInfo = () => world.manager.consumers.info(world.stream, "c");

  async function declareConsumer(ackWaitMs: number, config: object = {}): Promise<void> {
    const ack_wait = ackWaitMs * 1e6;
    await world.manager.consumers.add(world.stream, { durable_name: "c", ack_policy: "explicit", ack_wait, ...config });
  }

  /** Takes messages as a process does that dies with them in hand. */
  async function takeAndDie(count: number): Promise<void> {
    const consumer = await jetstream(world.direct).consumers.get(world.stream, "c");
    const taken = await consumer.fetch({ max_messages: count, expires: 5000 });
    let got = 0;
    for await (const _ of taken) if (++got === count) break;
    expect((await consumerInfo()).num_ack_pending).toBe(count);
  }

  function firstsInOrder(got: readonly IncomingMessage[], sent: readonly Message[], keys: readonly string[]): void {
    const firsts = got.filter((one, i) => got.findIndex(({ id }) => id === one.id) === i);
    for (const key of keys) expect(payloadsOf(firsts, key), key).toEqual(payloadsOf(sent, key));
  }

  it("gets what a killed process had in hand first, at once and in order", async () => {
    // As many as the consumer allows to be in hand at all.
    await declareConsumer(FOR_EVER_MS, { max_ack_pending: 15 });
    const sent = samples(world.stream, ["a", "b"], 20);
    await send(sent);
    await takeAndDie(15);
    const { got, handle, until } = recorder();
    const begun = performance.now();
    await (await subscriber()).start("c", handle);
    await until(40);
    expect(performance.now() - begun).toBeLessThan(FOR_EVER_MS / 4);
    expect(idsOf(got)).toHaveLength(40);
    firstsInOrder(got, sent, ["a", "b"]);
  });

  it("keeps that order also when the server does not heed the request, by waiting", async () => {
    await declareConsumer(1500);
    const sent = samples(world.stream, ["a"], 30);
    await send(sent);
    await takeAndDie(10);
    const deaf = without(await world.connect(), isNak);
    const { got, handle, until } = recorder();
    await (await subscriber({ connection: deaf, prefetch: 8 })).start("c", handle);
    await sleep(500);
    expect(got).toEqual([]);
    await until(30);
    firstsInOrder(got, sent, ["a"]);
  });

  it("would be out of order otherwise: shared consumers get the rest first", async () => {
    await declareConsumer(2000);
    await send(samples(world.stream, ["a"], 20));
    await takeAndDie(10);
    const { got, handle, until } = recorder();
    await (await subscriber({ ordered: false })).start("c", handle);
    await until(10);
    expect(payloadsOf(got.slice(0, 10), "a")).toEqual(numbers(10, 20));
    await until(20);
    expect(payloadsOf(got, "a").toSorted((a, b) => Number(a) - Number(b))).toEqual(numbers(0, 20));
  });

  it("keeps the order of keys though the connection breaks again and again", async () => {
    const keys = numbers(0, 20).map((n) => `k${n}`);
    const { got, handle } = recorder(async () => {
      await sleep(1);
      return DONE;
    });
    await (await subscriber({ prefetch: 50, maxAttempts: 2 })).start("c", handle);
    const sent = samples(world.stream, keys, 100);
    await send(sent);
    const distinct = (): number => new Set(idsOf(got)).size;
    for (let seen = 100; seen < sent.length; seen += 150) {
      await eventually(() => expect(distinct()).toBeGreaterThanOrEqual(seen), { timeoutMs: 20_000, intervalMs: 1 });
      world.proxy.cut();
    }
    await eventually(() => expect(distinct()).toBe(sent.length), { timeoutMs: 20_000 });
    firstsInOrder(got, sent, keys);
    expect(events.filter(({ type }) => type === "dead" || type === "retry")).toEqual([]);
    expect(events.some(({ type }) => type === "recovered")).toBe(true);
  });

  it("hands nothing on before it knows what was lost, though an old request brings messages at once", async () => {
    const slow = delayed(await world.connect(), 300);
    const { got, handle, until } = recorder();
    await (await subscriber({ connection: slow })).start("c", handle);
    const sent = samples(world.stream, ["a"], 30);
    await send(sent.slice(0, 10));
    await until(10);
    world.proxy.mute();
    await send(sent.slice(10, 20));
    await eventually(async () => expect((await consumerInfo()).delivered.stream_seq).toBe(20));
    world.proxy.cut();
    await eventually(() => expect(events.map(({ type }) => type)).toContain("outage"));
    await sleep(150);
    await send(sent.slice(20));
    await until(30);
    expect(payloadsOf(got, "a")).toEqual(numbers(0, 30));
  });

  it("acknowledges after the outage what was done meanwhile, and nothing is handled twice", async () => {
    const [all, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { got, handle, until } = recorder(async () => {
      if (got.length === 50) all.resolve();
      await gate.promise;
      return DONE;
    });
    await (await subscriber({ prefetch: 50, concurrency: 50 })).start("c", handle);
    const keys = numbers(0, 50).map(String);
    await send(samples(world.stream, keys, 1));
    await all.promise;
    await world.server.kill();
    gate.resolve();
    await sleep(200);
    await world.server.restart();
    await eventually(async () => expect((await consumerInfo()).num_ack_pending).toBe(0), { timeoutMs: 15_000 });
    await send(samples(world.stream, ["after"], 1));
    await until(51);
    await sleep(100);
    expect(got).toHaveLength(51);
  });

  it("tells JetStream that a long handler is at work", async () => {
    const { got, handle } = recorder(async () => {
      await sleep(1200);
      return DONE;
    });
    await (await subscriber({ ackWaitMs: 300 })).start("c", handle);
    // The second waits for the first: it is in hand as well.
    await send(samples(world.stream, ["a"], 2));
    await eventually(async () => expect((await consumerInfo()).ack_floor.stream_seq).toBe(2), { timeoutMs: 10_000 });
    expect(got).toHaveLength(2);
    expect((await consumerInfo()).num_redelivered).toBe(0);
  });

  it("gives a failed message without a key back for a while, and counts its attempts", async () => {
    const one = await subscriber({ maxAttempts: 4, backoff: { baseMs: 200, maxMs: 400 }, prefetch: 1 });
    const { got, handle } = recorder((message) =>
      message.key === null ? { status: "failed", error: new Error("not today") } : DONE,
    );
    await one.start("c", handle);
    await send([sample(world.stream, "poison", { key: null }), ...samples(world.stream, ["a"], 5)]);
    await eventually(() => expect(payloadsOf(got, "a")).toEqual(numbers(0, 5)));
    const [letter] = await storedMessages(world, `${world.stream}-dead`, 1);
    expect(got.filter(({ key }) => key === null)).toHaveLength(4);
    expect(letter?.headers.get("dead-attempts")).toBe("4");
    expect(letter?.headers.get("dead-subject")).toBe(`${world.stream}.sampled`);
    expect((await consumerInfo()).num_ack_pending).toBe(0);
  });

  it("reports that its consumer is gone, and goes on when it is there again", async () => {
    const { got, handle, until } = recorder();
    await (await subscriber()).start("c", handle);
    await send(samples(world.stream, ["a"], 3));
    await until(3);
    await world.manager.consumers.delete(world.stream, "c");
    await eventually(
      () =>
        expect(events).toContainEqual(
          expect.objectContaining({ type: "outage", error: expect.stringMatching(/has no consumer "c" any more/) }),
        ),
      { timeoutMs: 10_000 },
    );
    await declareConsumer(FOR_EVER_MS);
    await send(samples(world.stream, ["b"], 1));
    await eventually(() => expect(payloadsOf(got, "b")).toEqual([0]), { timeoutMs: 30_000 });
    expect(events.at(-1)?.type).toBe("recovered");
  });

  it("does not confuse messages of a new stream with messages of the old one", async () => {
    const hung = Promise.withResolvers<void>();
    const { got, handle, until } = recorder(async ({ key }) => {
      if (key === "hung") await hung.promise;
      return DONE;
    });
    await (await subscriber()).start("c", handle);
    await send([...samples(world.stream, ["a"], 3), sample(world.stream, 0, { key: "hung" })]);
    await until(4);
    // Consumers are told apart by the second of their creation.
    await sleep(1100);
    await world.manager.streams.delete(world.stream);
    await world.manager.streams.add({ name: world.stream, subjects: [`${world.stream}.>`] });
    await declareConsumer(FOR_EVER_MS);
    const sent = samples(world.stream, ["b"], 6);
    await send(sent);
    // Its acknowledgement must not count for the new message at its place.
    hung.resolve();
    await eventually(() => expect(payloadsOf(got, "b")).toEqual(numbers(0, 6)), { timeoutMs: 15_000 });
    await eventually(async () => expect((await consumerInfo()).ack_floor.stream_seq).toBe(6));
  });

  it("puts aside what has unreadable headers, and a message of 10 MB, and goes on", async () => {
    const { handle, until } = recorder(({ body }) =>
      body.length > 1_000_000 ? { status: "rejected", error: new Error("too much") } : DONE,
    );
    await (await subscriber()).start("c", handle);
    const body = Buffer.from([0xff, 0xfe, 0x00]);
    await publishRaw(world, `${world.stream}.raw`, "NATS/1.0\r\nbad name: x\r\n\r\n", body);
    await jetstream(world.direct).publish(`${world.stream}.big`, Buffer.alloc(10_000_000, "x"));
    await send([sample(world.stream, "fine")]);
    await until(2);
    const letters = await storedMessages(world, `${world.stream}-dead`, 2);
    expect(letters.map((letter) => [letter.body.length, letter.headers.get("dead-error")])).toEqual(
      expect.arrayContaining([
        [3, expect.stringMatching(/headers of this message cannot be read/)],
        [10_000_000, "Error: too much"],
      ]),
    );
    expect(Buffer.from(letters.find((letter) => letter.body.length === 3)?.body ?? []).equals(body)).toBe(true);
  });

  it("puts a message aside that leaves no room for reasons", async () => {
    const limit = world.direct.info?.max_payload ?? 0;
    await (await subscriber()).start("c", async () => ({ status: "rejected", error: new Error("no") }));
    await jetstream(world.direct).publish(`${world.stream}.big`, Buffer.alloc(limit - 20, "x"));
    const [letter] = await storedMessages(world, `${world.stream}-dead`, 1);
    expect(letter?.body.length).toBe(limit - 20);
    await eventually(async () => expect((await consumerInfo()).num_ack_pending).toBe(0));
  });

  it("gives back what is not begun when it stops, in order, and stops in an outage too", async () => {
    const gate = Promise.withResolvers<void>();
    const one = await subscriber();
    const first = recorder(async () => (await gate.promise, DONE));
    await one.start("c", first.handle);
    const sent = samples(world.stream, ["a", "b"], 10);
    await send(sent);
    await first.until(2);
    const stopping = one.stop();
    gate.resolve();
    await stopping;
    expect(first.got).toHaveLength(2);
    const second = recorder();
    await (await subscriber()).start("c", second.handle);
    await second.until(18);
    firstsInOrder([...first.got, ...second.got], sent, ["a", "b"]);
    await world.server.kill();
    const begun = performance.now();
    await Promise.all(running.splice(0).map((each) => each.stop()));
    expect(performance.now() - begun).toBeLessThan(4000);
    await world.server.restart();
  });

  it("serves partitions with a consumer each: two processes, and every key in order", async () => {
    const publisher = createNatsPublisher({ connection: world.direct, partitions: 2 });
    const both = [recorder(), recorder()];
    for (const [n, { handle }] of both.entries()) {
      await (await subscriber({ durable: `c-${n}`, filter: `${world.stream}.${n}.>` })).start("c", handle);
    }
    const keys = numbers(0, 10).map((n) => `k${n}`);
    const sent = samples(world.stream, keys, 30);
    await publisher.publish(sent, new AbortController().signal);
    await eventually(() => expect(both.reduce((sum, { got }) => sum + got.length, 0)).toBe(sent.length));
    expect(both.every(({ got }) => got.length > 0)).toBe(true);
    firstsInOrder(
      both.flatMap(({ got }) => got),
      sent,
      keys,
    );
    await publisher.close?.();
  });

  describe("does not start", () => {
    it.each([
      ["without its stream", { stream: "absent" }, "not_found", /no JetStream stream "absent".*declare: true/],
      ["without its consumer", {}, "not_found", /has no consumer "c".*declare: true/],
      ["without a place for dead letters", { durable: "fit" }, "permanent", /dead letters.*-dead.*declare: true/],
      ["with dead letters that come back", { durable: "fit", loop: true }, "invalid_option", /would come back/],
      ["with a consumer that drops messages", { durable: "dropping" }, "invalid_option", /max_deliver/],
      ["with a consumer that confirms all at once", { durable: "all" }, "invalid_option", /ack_policy/],
    ])(
      "%s",
      async (_, { loop = false, ...options }: { loop?: boolean; durable?: string; stream?: string }, code, message) => {
        const add = (name: string, config: object): Promise<unknown> =>
          world.manager.consumers.add(world.stream, { durable_name: name, ack_policy: "explicit", ...config });
        await add("fit", {});
        await add("dropping", { max_deliver: 3 });
        await add("all", { ack_policy: "all" });
        const deadLetter = loop ? { deadLetter: `${world.stream}.dead` } : {};
        const one = await subscriber({ declare: false, ...options, ...deadLetter });
        await expect(one.start("c", async () => DONE)).rejects.toMatchObject({
          code,
          message: expect.stringMatching(message),
        });
      },
    );
  });
});

/** A connection that drops some of what is published. */
function without(connection: NatsConnection, drop: (payload: unknown) => boolean): Client {
  return new Proxy(connection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "publish") return value.bind(target);
      return (subject: string, payload: unknown, options: unknown) =>
        drop(payload) ? undefined : target.publish(subject, payload as string, options as never);
    },
  });
}

/** A connection whose requests take a while. */
function delayed(connection: NatsConnection, ms: number): Client {
  return new Proxy(connection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "request") return value.bind(target);
      return async (...args: Parameters<NatsConnection["request"]>) => {
        await sleep(ms);
        return target.request(...args);
      };
    },
  });
}

/** A bare socket sends what no client would. */
async function publishRaw({ server }: NatsWorld, subject: string, headers: string, body: Buffer): Promise<void> {
  const socket = connectTcp(Number(new URL(server.url).port), "127.0.0.1");
  const size = Buffer.byteLength(headers);
  await new Promise<void>((resolve, reject) => {
    socket.once("error", reject);
    socket.on("data", (data) => data.toString().includes("PONG") && resolve());
    socket.write('CONNECT {"verbose":false,"headers":true,"protocol":1}\r\n');
    socket.write(`HPUB ${subject} ${size} ${size + body.length}\r\n${headers}`);
    socket.write(body);
    socket.write("\r\nPING\r\n");
  });
  socket.destroy();
}
