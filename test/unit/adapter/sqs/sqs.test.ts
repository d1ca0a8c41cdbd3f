import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { unpackFields } from "../../../../src/adapter/index.ts";
import type { Message } from "../../../../src/index.ts";
import {
  CONFORMANCE_ATTEMPTS,
  eventually,
  publisherConformance,
  runConformance,
  subscriberConformance,
  type PublisherContext,
  type SubscriberContext,
} from "../../../../src/testing/index.ts";
import { FakeSqs, type Stored } from "./fake-sqs.ts";
import { createSqsPublisher, createSqsSubscriber, type SqsSubscriberOptions } from "./sqs-adapter.ts";
import { MAX_BYTES, type SqsAttribute } from "./sqs-client.ts";
import { openMessage, unopened } from "./sqs-envelope.ts";

const urlOf = (name: string): string => `https://sqs.example/1/${name}.fifo`;
const byStream = ({ stream }: Message): string => urlOf(stream);
const never = (): AbortSignal => new AbortController().signal;
const received = ({ id, MessageBody: Body, MessageAttributes, MessageGroupId }: Stored) => ({
  MessageId: id,
  Body,
  MessageAttributes,
  Attributes: { MessageGroupId },
});

async function publisherContext(): Promise<PublisherContext & AsyncDisposable> {
  const client = new FakeSqs();
  const stream = `s-${randomUUID()}`;
  const route = { stream: `r-${randomUUID()}` };
  for (const name of [stream, route.stream]) client.create(urlOf(name));
  const publisher = createSqsPublisher({ client, queueUrl: byStream, timeoutMs: 2000 });
  const arrivedAt = (name: string) => (count: number) =>
    eventually(() => {
      expect(client.all(urlOf(name)).length).toBeGreaterThanOrEqual(count);
      return client.all(urlOf(name)).map((one) => openMessage(received(one), urlOf(name)));
    });
  return {
    publisher,
    stream,
    arrived: arrivedAt(stream),
    refuse: async (id, how) => void client.refused.set(id, how),
    oversized: () => "x".repeat(MAX_BYTES + 1),
    unroutable: () => "nowhere",
    route: {
      ...route,
      goOut: async () => void client.denied.add(urlOf(route.stream)),
      comeBack: async () => client.denied.clear(),
      arrived: arrivedAt(route.stream),
    },
    goDown: async () => void (client.isDown = true),
    comeBack: async () => void (client.isDown = false),
    async hang() {
      const { promise, resolve } = Promise.withResolvers<void>();
      client.hanging = promise;
      return async () => {
        client.hanging = undefined;
        resolve();
      };
    },
    [Symbol.asyncDispose]: async () => publisher.close?.(),
  };
}

function scene() {
  const client = new FakeSqs();
  const stream = `s-${randomUUID()}`;
  const [queueUrl, deadLetterUrl] = [urlOf(stream), urlOf(`${stream}-dead`)];
  for (const url of [queueUrl, deadLetterUrl]) client.create(url);
  const open: { stop(): Promise<void> }[] = [];
  const publisher = createSqsPublisher({ client, queueUrl: byStream });
  return {
    client,
    stream,
    queueUrl,
    deadLetterUrl,
    subscriber(options: Partial<SqsSubscriberOptions> = {}) {
      const backoff = { baseMs: 5, maxMs: 20 };
      const common = { client, queueUrl, deadLetterUrl, visibilitySeconds: 1, backoff };
      const subscriber = createSqsSubscriber({ ...common, maxAttempts: CONFORMANCE_ATTEMPTS, ...options });
      open.push(subscriber);
      return subscriber;
    },
    async send(messages: readonly Message[]) {
      const results = await publisher.publish(messages, never());
      expect(results.map(({ status }) => status)).toEqual(messages.map(() => "published"));
    },
    async [Symbol.asyncDispose]() {
      for (const subscriber of open) await subscriber.stop();
    },
  };
}

async function subscriberContext(): Promise<SubscriberContext & AsyncDisposable> {
  const here = scene();
  const { client, queueUrl, deadLetterUrl } = here;
  return {
    ...here,
    // Bytes go as the adapter documents it.
    async sendForeign(body, headers = {}) {
      const text = (StringValue: string): SqsAttribute => ({ DataType: "String", StringValue });
      const MessageAttributes = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, text(value)]));
      MessageAttributes["txbox-encoding"] = text("base64");
      const MessageBody = `base64${Buffer.from(body).toString("base64")}`;
      const ids = { Id: "1", MessageGroupId: randomUUID(), MessageDeduplicationId: randomUUID() };
      const answer = await client.sendMessageBatch({
        QueueUrl: queueUrl,
        Entries: [{ ...ids, MessageBody, MessageAttributes }],
      });
      expect(answer).toEqual({});
    },
    deadLetters: (count) =>
      eventually(() => {
        const letters = client.all(deadLetterUrl).map(received);
        expect(letters.length).toBeGreaterThanOrEqual(count);
        return letters.map((letter) => ({
          body: Buffer.from(unopened(letter).body as string),
          headers: { ...unpackFields("txbox-dead", letter.MessageAttributes["txbox-dead"]?.StringValue) },
        }));
      }),
  };
}

/** Bodies of `byteLimit` are larger than SQS takes; that it is kept to is shown below. */
const skip = (): void => undefined;

describe("an SQS adapter made of txbox/adapter, as the guide says", { concurrent: true }, () => {
  runConformance(publisherConformance, {
    features: ["refusal", "oversized", "unroutable", "routes", "outage", "hanging", "closing"],
    context: publisherContext,
    it,
    skip,
  });
  runConformance(subscriberConformance, {
    features: ["redelivery", "durable", "keyOrder", "orderedRetry", "parallel", "competing", "foreign", "deadLetters"],
    context: subscriberContext,
    it,
    skip,
  });

  it("renews a message for as long as its handler takes", async () => {
    await using here = scene();
    const got: unknown[] = [];
    const handle = async ({ id }: { id?: string | undefined }, signal: AbortSignal) => {
      got.push(id);
      await sleep(2500);
      expect(signal.aborted).toBe(false);
      expect(here.client.all(here.queueUrl).map(({ receiveCount }) => receiveCount)).toEqual([1]);
      return { status: "done" } as const;
    };
    for (const _ of [1, 2]) await here.subscriber().start("consumer", handle);
    const messages = samplesOf(here.stream, ["a"], 1);
    await here.send(messages);
    await eventually(() => expect(here.client.all(here.queueUrl)).toEqual([]), { timeoutMs: 6000 });
    expect(got).toEqual([messages[0]!.id]);
  });

  it("aborts all of a key when it could not renew, and lets nothing overtake", async () => {
    await using here = scene();
    const messages = samplesOf(here.stream, ["a"], 3);
    const got: unknown[] = [];
    const lost = Promise.withResolvers<void>();
    const one = here.subscriber({ concurrency: 1 });
    await here.send(messages);
    await one.start("consumer", async ({ id }, signal) => {
      got.push(id);
      if (got.length > 1) return { status: "done" };
      here.client.isDown = true;
      signal.addEventListener("abort", () => lost.resolve());
      await lost.promise;
      here.client.isDown = false;
      return { status: "failed", error: new Error("lost") };
    });
    await eventually(() => expect(here.client.all(here.queueUrl)).toEqual([]), { timeoutMs: 8000 });
    expect(got).toEqual([messages[0]!, ...messages].map(({ id }) => id));
  });

  it("gives back at once what a request had brought that a stop cut off", async () => {
    await using here = scene();
    const first = here.subscriber({ visibilitySeconds: 600 });
    await first.start("consumer", async () => ({ status: "done" }));
    const messages = samplesOf(here.stream, ["a", "b"], 2);
    // The service gives them out, and the answer is on its way when the subscriber is stopped.
    const sending = here.send(messages);
    await eventually(() => expect(here.client.all(here.queueUrl).some(({ receipt }) => receipt !== "")).toBe(true), {
      intervalMs: 1,
    });
    await first.stop();
    await sending;
    await here.subscriber().start("consumer", async () => ({ status: "done" }));
    await eventually(() => expect(here.client.all(here.queueUrl)).toEqual([]));
  });

  it("acknowledges what is done together", async () => {
    await using here = scene();
    const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
    await here.send(samplesOf(here.stream, keys, 1));
    await here.subscriber().start("consumer", async () => ({ status: "done" }));
    await eventually(() => expect(here.client.all(here.queueUrl)).toEqual([]));
    expect(here.client.calls.get("deleteMessageBatch")).toBeLessThan(30);
  });

  it("holds no more bytes than it may", async () => {
    await using here = scene();
    const messages = samplesOf(here.stream, ["a", "b", "c", "d", "e", "f", "g", "h"], 2).map((message) => ({
      ...message,
      body: JSON.stringify("x".repeat(100_000)),
    }));
    await here.send(messages);
    let [inHand, most, done] = [0, 0, 0];
    await here.subscriber({ prefetchBytes: 400_000 }).start("consumer", async ({ body }) => {
      most = Math.max(most, (inHand += body.length));
      await sleep(20);
      inHand -= body.length;
      done++;
      return { status: "done" };
    });
    await eventually(() => expect(done).toBe(messages.length));
    expect(most).toBeLessThanOrEqual(400_000 + MAX_BYTES);
    expect(most).toBeGreaterThan(200_000);
  });

  it("puts a message aside without reasons when it has no attribute left for them", async () => {
    await using here = scene();
    const full = Object.fromEntries(
      Array.from({ length: 10 }, (_, i) => [`a${i}`, { DataType: "String", StringValue: "x" }]),
    );
    const ids = { Id: "1", MessageGroupId: "g", MessageDeduplicationId: "d" };
    const Entries = [{ ...ids, MessageBody: "{}", MessageAttributes: full }];
    await here.client.sendMessageBatch({ QueueUrl: here.queueUrl, Entries });
    await here.subscriber().start("consumer", async () => ({ status: "rejected", error: new Error("no") }));
    await eventually(() => expect(here.client.all(here.queueUrl)).toEqual([]));
    expect(here.client.all(here.deadLetterUrl).map((letter) => letter.MessageAttributes)).toEqual([full]);
  });

  it("does not start on a queue that is missing", async () => {
    await using here = scene();
    const one = here.subscriber({ queueUrl: urlOf("missing") });
    await expect(one.start("consumer", async () => ({ status: "done" }))).rejects.toThrow(/no queue .*missing/);
  });
});

/** As a store hands them out: of each key so many, in turns. */
function samplesOf(stream: string, keys: readonly string[], each: number): Message[] {
  const createdAt = new Date();
  const common = { stream, type: "sampled", aggregateType: null, aggregateId: null, headers: {}, createdAt };
  return Array.from({ length: each }, (_, n) =>
    keys.map((key) => ({ ...common, key, id: randomUUID(), position: BigInt(n), body: JSON.stringify(n) })),
  ).flat();
}
