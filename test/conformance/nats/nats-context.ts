import assert from "node:assert/strict";
import { jetstream } from "@nats-io/jetstream";
import { headers as newHeaders } from "@nats-io/transport-node";
import { createNatsPublisher, createNatsSubscriber } from "../../../src/brokers/nats/index.ts";
import type { Publisher, Subscriber } from "../../../src/core/contracts.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import {
  CONFORMANCE_ATTEMPTS,
  eventually,
  type AsideMessage,
  type PublisherContext,
  type SubscriberContext,
} from "../../../src/testing/index.ts";
import { decodeEnvelope } from "../../../src/adapter/envelope.ts";
import { NATS_TRANSPORT } from "../../../src/brokers/nats/nats-headers.ts";
import { natsWorld, storedMessages } from "../../support/nats-world.ts";
import { refusingConnection } from "./refusing-connection.ts";

function fieldsOf(headers: ReadonlyMap<string, string>): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => !name.startsWith("Nats-")));
}

export async function natsPublisherContext(): Promise<PublisherContext & AsyncDisposable> {
  const world = await natsWorld();
  const connection = refusingConnection(await world.connect());
  const publishers: Publisher[] = [];
  const publisher = (more: object): Publisher => {
    const made = createNatsPublisher({ connection: connection.client, timeoutMs: 3000, ...more });
    publishers.push(made);
    return made;
  };
  return {
    publisher: publisher({}),
    cloudEvents: publisher({ envelope: "cloudevents", source: "https://example.org/orders" }),
    stream: world.stream,
    async contentTypes(count) {
      const found = await storedMessages(world, world.stream, count);
      for (const { headers } of found)
        assert.equal(headers.get("content-type"), decodeURIComponent(headers.get("ce-datacontenttype") ?? ""));
      return found.map(({ headers }) => headers.get("content-type"));
    },
    async arrived(count): Promise<IncomingMessage[]> {
      const found = await storedMessages(world, world.stream, count);
      return found.map(({ body, headers }) => decodeEnvelope(fieldsOf(headers), body, NATS_TRANSPORT));
    },
    refuse: async (id, how) => connection.refuse(id, how),
    // The default of nats-server is 1 MiB.
    oversized: () => "x".repeat(1_100_000),
    unroutable: () => "nowhere",
    goDown: () => world.server.kill(),
    comeBack: () => world.server.restart(),
    disconnect: async () => world.proxy.cut(),
    async hang() {
      world.server.pause();
      return async () => world.server.resume();
    },
    async [Symbol.asyncDispose]() {
      world.server.resume();
      for (const one of publishers) await one.close?.();
      await world[Symbol.asyncDispose]();
    },
  };
}

export async function natsSubscriberContext(): Promise<SubscriberContext & AsyncDisposable> {
  const world = await natsWorld();
  const { stream } = world;
  const dead = `${stream}-dead`;
  await world.manager.streams.add({ name: dead, subjects: [dead] });
  await world.manager.consumers.add(stream, {
    durable_name: "consumer",
    ack_policy: "explicit",
    ack_wait: 3000 * 1e6,
  });
  const connections = [await world.connect(), await world.connect()];
  const subscribers: Subscriber[] = [];
  const sender = createNatsPublisher({ connection: world.direct });
  return {
    stream,
    subscriber(limits) {
      const connection = connections[subscribers.length % connections.length];
      if (connection === undefined) throw new Error("no connection");
      const subscriber = createNatsSubscriber({
        connection,
        stream,
        maxAttempts: CONFORMANCE_ATTEMPTS,
        backoff: { baseMs: 5, maxMs: 20 },
        ...limits,
      });
      subscribers.push(subscriber);
      return subscriber;
    },
    async send(messages) {
      let left = messages;
      await eventually(
        async () => {
          const results = await sender.publish(left, new AbortController().signal);
          left = left.filter((_, i) => results[i]?.status !== "published");
          if (left.length > 0) throw new Error(`${left.length} messages could not be sent`);
        },
        { timeoutMs: 15_000 },
      );
    },
    async sendForeign(body, headers = {}) {
      const made = newHeaders();
      for (const [name, value] of Object.entries(headers)) made.set(name, value);
      await jetstream(world.direct).publish(`${stream}.foreign`, body, { headers: made });
    },
    disconnect: async () => world.proxy.cut(),
    async restart() {
      await world.server.kill();
      await world.server.restart();
    },
    async deadLetters(count): Promise<AsideMessage[]> {
      const found = await storedMessages(world, dead, count);
      return found.map(({ body, headers }) => ({ body, headers: Object.fromEntries(headers) }));
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(subscribers.map((one) => one.stop()));
      await sender.close?.();
      await world[Symbol.asyncDispose]();
    },
  };
}
