import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import {
  CONFORMANCE_ATTEMPTS,
  eventually,
  publisherConformance,
  runConformance,
  subscriberConformance,
  type PublisherContext,
  type SubscriberContext,
} from "../../../../src/testing/index.ts";
import { createAcmePublisher, createAcmeSubscriber, openEntry } from "./acme-adapter.ts";
import { AcmeServer, MAX_BYTES } from "./acme-server.ts";

/** Nothing that applies may be skipped; what does not is said here. */
const skip = (): void => undefined;

async function publisherContext(): Promise<PublisherContext & AsyncDisposable> {
  const server = new AcmeServer();
  const stream = `s-${randomUUID()}`;
  server.create(stream);
  const publisher = createAcmePublisher({ client: server });
  return {
    publisher,
    stream,
    arrived: (count) =>
      eventually(() => {
        expect(server.all(stream).length).toBeGreaterThanOrEqual(count);
        return server.all(stream).map((entry) => openEntry(entry, stream));
      }),
    refuse: async (id, how) => void server.refused.set(id, how),
    oversized: () => "x".repeat(MAX_BYTES + 1),
    unroutable: () => "nowhere",
    goDown: async () => void (server.down = true),
    comeBack: async () => void (server.down = false),
    async hang() {
      const { promise, resolve } = Promise.withResolvers<void>();
      server.hanging = promise;
      return async () => {
        server.hanging = undefined;
        resolve();
      };
    },
    [Symbol.asyncDispose]: async () => publisher.close?.(),
  };
}

async function subscriberContext(): Promise<SubscriberContext & AsyncDisposable> {
  const server = new AcmeServer();
  const stream = `s-${randomUUID()}`;
  const dead = `${stream}.dead`;
  for (const queue of [stream, dead]) server.create(queue);
  const open: { stop(): Promise<void> }[] = [];
  const sender = createAcmePublisher({ client: server });
  return {
    stream,
    subscriber(limits) {
      const backoff = { baseMs: 5, maxMs: 20 };
      const subscriber = createAcmeSubscriber({
        client: server,
        queue: stream,
        invisibleMs: 500,
        maxAttempts: CONFORMANCE_ATTEMPTS,
        backoff,
        ...limits,
      });
      open.push(subscriber);
      return subscriber;
    },
    send: async (messages) => void (await sender.publish(messages, new AbortController().signal)),
    sendForeign: async (body, headers) => {
      const attributes = headers === undefined ? undefined : JSON.stringify(headers);
      await server.send(stream, [{ body, attributes, group: undefined }]);
    },
    deadLetters: (count) =>
      eventually(() => {
        expect(server.all(dead).length).toBeGreaterThanOrEqual(count);
        return server.all(dead).map(({ body, attributes }) => ({
          body,
          headers: JSON.parse(attributes ?? "{}") as Record<string, string>,
        }));
      }),
    async [Symbol.asyncDispose]() {
      for (const subscriber of open) await subscriber.stop();
    },
  };
}

describe("an adapter made of txbox/adapter, as the guide says", () => {
  runConformance(publisherConformance, {
    features: ["refusal", "oversized", "unroutable", "outage", "hanging", "closing"],
    context: publisherContext,
    it,
    skip,
  });
  runConformance(subscriberConformance, {
    features: [
      "redelivery",
      "durable",
      "keyOrder",
      "orderedRetry",
      "parallel",
      "competing",
      "foreign",
      "deadLetters",
      "byteLimit",
    ],
    context: subscriberContext,
    it,
    skip,
  });
});
