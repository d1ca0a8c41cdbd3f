import { randomBytes } from "node:crypto";
import type { GetMessage } from "amqplib";
import {
  createRabbitmqPublisher,
  createRabbitmqSubscriber,
  type RabbitmqSubscriberOptions,
} from "../../../src/brokers/rabbitmq/index.ts";
import { openFromRabbitmq, encodeForRabbitmq } from "../../../src/brokers/rabbitmq/rabbitmq-envelope.ts";
import { routeByStream } from "../../../src/brokers/rabbitmq/rabbitmq-route.ts";
import type { Subscriber } from "../../../src/core/contracts.ts";
import {
  CONFORMANCE_ATTEMPTS,
  type PublisherContext,
  type SubscriberContext,
  type SubscriberLimits,
} from "../../../src/testing/index.ts";
import { RABBITMQ_MAX_MESSAGE_BYTES, type RabbitmqServer } from "../../harness/start-rabbitmq.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";
import { RabbitmqObserver } from "./rabbitmq-observer.ts";

const quorum = { durable: true, arguments: { "x-queue-type": "quorum" } };

/**
 * RabbitMQ says of no message that it may work later: queues and exchanges are out, or the message can never work. So a
 * message fails here before it is sent; one that can never work goes to a queue that does not exist.
 */
export async function rabbitmqPublisherContext(
  server: RabbitmqServer,
  mayKill: boolean,
): Promise<PublisherContext & AsyncDisposable> {
  const stream = `s-${randomBytes(6).toString("hex")}`;
  const [other, nowhere] = [`${stream}.other`, `${stream}.nowhere`];
  const observer = await RabbitmqObserver.to(server.url);
  const channel = await observer.channel();
  for (const name of [stream, other]) {
    await channel.assertExchange(name, "topic");
    await channel.assertQueue(name, quorum);
    await channel.bindQueue(name, name, "#");
  }
  if (mayKill) await server.saveTopology();

  const link = await testConnection(server.url);
  const refused = new Map<string, "failed" | "rejected">();
  const publisher = createRabbitmqPublisher({
    connection: link.connection,
    route(message) {
      const how = refused.get(message.id);
      if (how === "rejected") return { exchange: "", routingKey: nowhere };
      if (how === undefined) return routeByStream(message);
      refused.delete(message.id);
      throw new Error("not this time");
    },
  });
  const cloudEvents = createRabbitmqPublisher({ connection: link.connection, envelope: "cloudevents" });
  const got: GetMessage[] = [];
  const gotByOther: GetMessage[] = [];
  return {
    publisher,
    cloudEvents,
    stream,
    contentTypes: async (count) =>
      (await observer.collect(stream, got, count)).map(({ properties }) => properties.contentType as string),
    arrived: async (count) => (await observer.collect(stream, got, count)).map(openFromRabbitmq),
    route: {
      stream: other,
      goOut: async () => void (await channel.unbindQueue(other, other, "#")),
      comeBack: async () => void (await channel.bindQueue(other, other, "#")),
      arrived: async (count) => (await observer.collect(other, gotByOther, count)).map(openFromRabbitmq),
    },
    refuse: async (id, how) => void refused.set(id, how),
    oversized: () => new Uint8Array(RABBITMQ_MAX_MESSAGE_BYTES + 1),
    unroutable: () => nowhere,
    goDown: () => server.kill(),
    comeBack: () => server.restart(),
    disconnect: async () => link.cut(),
    async hang() {
      server.pause();
      return async () => server.resume();
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([publisher.close?.(), cloudEvents.close?.()]);
      await link[Symbol.asyncDispose]();
      await forget(observer, [stream, other], [stream, other]);
    },
  };
}

export async function rabbitmqSubscriberContext(
  server: RabbitmqServer,
  mayKill: boolean,
): Promise<SubscriberContext & AsyncDisposable> {
  const stream = `s-${randomBytes(6).toString("hex")}`;
  const queue = `${stream}.queue`;
  const observer = await RabbitmqObserver.to(server.url);
  const channel = await observer.channel();
  // Messages that are sent before there is a subscriber must have a place to wait in.
  await channel.assertExchange(stream, "topic");
  await channel.assertQueue(`${queue}.dead`, quorum);
  const expelled = { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": `${queue}.dead` };
  // A server that comes up again serves new consumers before it takes back what the old ones had, unless only one may be active.
  const single = mayKill ? { "x-single-active-consumer": true } : {};
  await channel.assertQueue(queue, { ...quorum, arguments: { ...quorum.arguments, ...expelled, ...single } });
  await channel.bindQueue(queue, stream, "#");
  if (mayKill) await server.saveTopology();

  const links: TestConnection[] = [];
  const subscribers: Subscriber[] = [];
  const dead: GetMessage[] = [];
  return {
    stream,
    subscriber(limits) {
      // A server that was killed may have forgotten the binding: a subscriber that declares it brings it back.
      const declare = mayKill && { bind: { [stream]: "#" } };
      const one = separateSubscriber(server.url, { queue, declare, ...limits }, links);
      subscribers.push(one);
      return one;
    },
    async send(messages) {
      await Promise.all(
        messages.map((message) => {
          const { exchange, routingKey } = routeByStream(message);
          const { content, options } = encodeForRabbitmq(message, "native");
          return observer.publish(exchange, routingKey, content, options);
        }),
      );
    },
    async sendForeign(body, headers = {}) {
      const { "content-type": contentType, ...rest } = headers;
      const type = contentType === undefined ? {} : { contentType };
      await observer.publish(stream, "foreign", Buffer.from(body), { ...type, headers: rest });
    },
    disconnect: async () => links.forEach((link) => link.cut()),
    restart: () => server.restart(),
    async deadLetters(count) {
      const letters = await observer.collect(`${queue}.dead`, dead, count);
      return letters.map(({ content, properties }) => ({ body: content, headers: properties.headers ?? {} }));
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(subscribers.map((one) => one.stop()));
      await Promise.all(links.map((link) => link[Symbol.asyncDispose]()));
      await forget(observer, [queue, `${queue}.dead`], [stream]);
    },
  };
}

/** With a connection of its own, as another process has it. */
function separateSubscriber(
  url: string,
  options: Pick<RabbitmqSubscriberOptions, "queue" | "declare" | keyof SubscriberLimits>,
  links: TestConnection[],
): Subscriber {
  let made: Subscriber | undefined;
  return {
    async start(consumer, handle) {
      if (made === undefined) {
        const link = await testConnection(url);
        links.push(link);
        made = createRabbitmqSubscriber({
          connection: link.connection,
          ...options,
          maxAttempts: CONFORMANCE_ATTEMPTS,
          backoff: { baseMs: 5, maxMs: 20 },
        });
      }
      await made.start(consumer, handle);
    },
    stop: async () => made?.stop(),
  };
}

async function forget(observer: RabbitmqObserver, queues: string[], exchanges: string[]): Promise<void> {
  try {
    const channel = await observer.channel();
    for (const queue of queues) await channel.deleteQueue(queue);
    for (const exchange of exchanges) await channel.deleteExchange(exchange);
  } catch {
    // A server that is gone has nothing to clean.
  }
  await observer[Symbol.asyncDispose]();
}
