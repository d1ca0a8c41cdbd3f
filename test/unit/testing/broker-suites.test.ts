import { describe, expect, it } from "vitest";
import type { PublisherContext, PublisherFeature, SubscriberContext } from "../../../src/testing/index.ts";
import {
  createMemoryPublisher,
  eventually,
  publisherConformance,
  runConformance,
  subscriberConformance,
} from "../../../src/testing/index.ts";
import { everyPublisherFeature, everySubscriberFeature } from "../../support/broker-features.ts";
import { ReferenceBroker, type Fault } from "./reference-broker.ts";

const dispose = { [Symbol.asyncDispose]: () => Promise.resolve() };
const nothing = (): Promise<void> => Promise.resolve();

async function publisherContext(fault?: Fault): Promise<PublisherContext & AsyncDisposable> {
  const broker = new ReferenceBroker(fault);
  const at = (stream: string, count: number) =>
    eventually(
      () => {
        const there = broker.arrived.filter((message) => message.stream === stream);
        expect(there.length).toBeGreaterThanOrEqual(count);
        return there;
      },
      { timeoutMs: 300 },
    );
  return {
    publisher: broker.publisher(),
    route: {
      stream: "route",
      goOut: async () => void broker.routesOut.add("route"),
      comeBack: async () => void broker.routesOut.delete("route"),
      arrived: (count) => at("route", count),
    },
    cloudEvents: broker.publisher(),
    contentTypes: async (count) => {
      expect(broker.arrived.length).toBeGreaterThanOrEqual(count);
      return broker.arrived.map(({ headers }) => headers.contentType ?? "application/json");
    },
    stream: "s",
    arrived: (count) => at("s", count),
    refuse: async (id, how) => void broker.refused.set(id, how),
    oversized: () => "x".repeat(1_000_001),
    unroutable: () => "nowhere",
    goDown: async () => void (broker.down = true),
    comeBack: async () => void (broker.down = false),
    disconnect: nothing,
    async hang() {
      const { promise, resolve } = Promise.withResolvers<void>();
      broker.hanging = promise;
      return async () => {
        broker.hanging = undefined;
        resolve();
      };
    },
    ...dispose,
  };
}

async function subscriberContext(fault?: Fault): Promise<SubscriberContext & AsyncDisposable> {
  const broker = new ReferenceBroker(fault);
  return {
    subscriber: (limits) => broker.subscriber(limits),
    stream: "s",
    send: async (messages) => {
      for (const message of messages) broker.send(message);
    },
    sendForeign: async (body, headers) => broker.sendForeign(body, headers),
    disconnect: nothing,
    restart: nothing,
    deadLetters: (count) =>
      eventually(() => (expect(broker.aside.length).toBeGreaterThanOrEqual(count), broker.aside), { timeoutMs: 300 }),
    ...dispose,
  };
}

/** Everything applies: nothing may be skipped. */
const skip = (name: string): void => {
  throw new Error(`${name} was skipped`);
};

describe.concurrent("publisherConformance", () => {
  describe("is passed by a broker that has everything", () => {
    runConformance(publisherConformance, {
      features: everyPublisherFeature,
      context: () => publisherContext(),
      it,
      skip,
    });
  });

  describe("is passed by the memory publisher", () => {
    const features: PublisherFeature[] = ["refusal", "outage", "hanging", "closing"];
    const context = async (): Promise<PublisherContext & AsyncDisposable> => {
      const publisher = createMemoryPublisher();
      const once = new Set<string>();
      return {
        publisher,
        stream: "s",
        arrived: async () => publisher.published,
        async refuse(id, how) {
          if (how === "rejected") return publisher.reject((message) => message.id === id);
          once.add(id);
          publisher.fail((message) => once.delete(message.id));
        },
        goDown: async () => publisher.goDown(),
        comeBack: async () => publisher.heal(),
        async hang() {
          publisher.hang();
          return async () => publisher.heal();
        },
        ...dispose,
      };
    };
    runConformance(publisherConformance, { features, context, it, skip: () => undefined });
  });

  it.each<[Fault, string]>([
    ["confirms early", "reports the one message that failed, and delivers the others"],
    ["overtakes", "lets nothing of a key overtake its failed message, if it says that it keeps the order"],
    ["blames in an outage", "blames no message for an outage, and goes on by itself afterwards"],
    ["ignores the signal", "comes back soon when the lease is lost while the target does not answer"],
    ["outlives its lease", "begins nothing more when the lease ends in the middle of a batch"],
    ["takes a route for all", "a route that is out holds up its own messages only, is named, and blames none of them"],
    ["drops headers", "carries every field and header, Unicode included"],
  ])("notices that a publisher %s", async (fault, name) => {
    const one = publisherConformance.find((candidate) => candidate.name === name);
    await expect(one?.run(await publisherContext(fault))).rejects.toThrow();
  });
});

describe.concurrent("subscriberConformance", () => {
  describe("is passed by a broker that has everything", () => {
    runConformance(subscriberConformance, {
      features: everySubscriberFeature,
      context: () => subscriberContext(),
      it,
      skip,
    });
  });

  it.each<[Fault, string]>([
    ["drops headers", "delivers every field, header and body unchanged, once"],
    ["repeats done", "delivers every field, header and body unchanged, once"],
    ["repeats rejected", "does not deliver again what is rejected"],
    ["does not wait", "waits for the message in hand when it is stopped, and takes no more"],
    ["mixes a key", "delivers the messages of a key in order, one at a time"],
    ["drops the dead", "puts what is rejected aside with its bytes and its error, and goes on"],
    ["drops the dead", "puts aside what fails again and again, and then lets its key go on"],
    ["takes any size", "holds no more bytes than it may, and takes everything in the order of keys"],
  ])("notices that a subscriber %s", async (fault, name) => {
    const one = subscriberConformance.find((candidate) => candidate.name === name);
    await expect(one?.run(await subscriberContext(fault))).rejects.toThrow();
  });
});
