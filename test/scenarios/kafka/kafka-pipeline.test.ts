import { afterAll, describe, expect, it } from "vitest";
import {
  createKafkaPipeline,
  createKafkaSubscriber,
  type KafkaPipeline,
  type PipelineHandler,
} from "../../../src/brokers/kafka/index.ts";
import { PermanentError } from "../../../src/core/errors.ts";
import type { HandledMessage } from "../../../src/core/message.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { serverOrSkip, spawnNode, startKafka, until } from "../../harness/index.ts";
import { ForeignProducer } from "../../support/kafka/foreign-client.ts";
import { kcatRead, kcatSend } from "../../support/kafka/kcat.ts";
import { createTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

const slot = await serverOrSkip("Kafka", () => startKafka());
afterAll(() => slot.stop());

interface World extends AsyncDisposable {
  readonly input: string;
  readonly output: string;
  readonly brokers: string[];
  pipeline(handle: PipelineHandler, more?: object): KafkaPipeline;
}

async function world(partitions = 2): Promise<World> {
  const { brokers } = slot.server;
  const input = `in-${uuidv7()}`;
  const output = `out-${uuidv7()}`;
  for (const topic of [input, output]) await createTopic(brokers, topic, partitions);
  await createTopic(brokers, `${input}.dead`, 1);
  const stops: (() => Promise<unknown>)[] = [];
  return {
    input,
    output,
    brokers,
    pipeline(handle, more = {}) {
      const consumer = openConsumer(brokers, `group-${input}`);
      const pipeline = createKafkaPipeline({
        consumer,
        producer: (transactionalId) => openProducer(brokers, { transactionalId, retries: 50, retryDelay: 20 }),
        topics: [input],
        handle,
        backoff: { baseMs: 5, maxMs: 20 },
        maxAttempts: 3,
        sessionTimeoutMs: 3000,
        ...more,
      });
      stops.push(
        () => pipeline.stop(),
        () => consumer.close(),
      );
      return pipeline;
    },
    async [Symbol.asyncDispose]() {
      for (const stop of stops) await stop();
    },
  };
}

const text = (records: readonly { payload: string | null }[]): string[] =>
  records.map(({ payload }) => String(payload));

describe.skipIf(slot.skipped)("consume → process → produce in one Kafka transaction", () => {
  it("hands on what comes in, with keys, correlation and ids, in order", async () => {
    await using at = await world();
    const pipeline = at.pipeline(({ payload, key }, send) => {
      send({ stream: at.output, type: "doubled", key: String(key), payload: Number(payload) * 2 });
    });
    await pipeline.start();
    for (const key of ["a", "b"]) await kcatSend(at.brokers, at.input, ["1", "2", "3"], { key });
    await until(async () => (await kcatRead(at.brokers, at.output)).length === 6, {
      what: "outputs",
      timeoutMs: 60_000,
    });
    const got = await kcatRead(at.brokers, at.output);
    for (const key of ["a", "b"]) expect(text(got.filter((one) => one.key === key))).toEqual(["2", "4", "6"]);
    expect(got[0]?.headers["txbox-type"]).toBe("doubled");
    expect(new Set(got.map(({ headers }) => headers["txbox-id"])).size).toBe(6);
    expect(got[0]?.headers["correlation-id"]).toMatch(new RegExp(`^${at.input}/\\d/0@[-0-9a-f]+\\.0$`));
  });

  it("never shows an aborted record to a handler: ten transactions, every second one aborted, as kcat sees them", async () => {
    await using at = await world(1);
    await tenTransactions(at.brokers, at.input);
    const seen: string[] = [];
    const pipeline = at.pipeline(({ payload }) => void seen.push(String(payload)));
    await pipeline.start();
    await until(() => seen.includes("end"), { what: "the last record", timeoutMs: 60_000 });
    expect(seen).toEqual(["0", "2", "4", "6", "8", "end"]);
    expect(await readBySubscriber(at.brokers, at.input)).toEqual(seen);
    expect(seen).toEqual(text(await kcatRead(at.brokers, at.input)).map((one) => JSON.parse(one) as string));
  });

  it("a handler that throws leaves no output and no offset, until it succeeds", async () => {
    await using at = await world(1);
    let attempts = 0;
    const pipeline = at.pipeline(
      ({ payload }, send) => {
        send({ stream: at.output, type: "seen", payload: `${String(payload)}-${attempts}` });
        if (payload === 2 && ++attempts < 4) throw new Error("not yet");
      },
      { maxAttempts: 10 },
    );
    await pipeline.start();
    await kcatSend(at.brokers, at.input, ["1", "2", "3"]);
    await until(async () => (await kcatRead(at.brokers, at.output)).length >= 3, {
      what: "outputs",
      timeoutMs: 60_000,
    });
    expect(text(await kcatRead(at.brokers, at.output))).toEqual(['"1-0"', '"2-3"', '"3-4"']);
  });

  it("what never works is put aside with its offset in one transaction, and the rest goes on", async () => {
    await using at = await world(1);
    const pipeline = at.pipeline(({ payload }, send) => {
      if (payload === 2) throw new PermanentError("two is too much");
      if (payload === 3) throw new Error("three again and again");
      if (payload === 4) send({ stream: "nowhere", type: "lost", payload: 4 });
      send({ stream: at.output, type: "seen", payload: payload === 5 ? "x".repeat(2_000_000) : payload });
    });
    await pipeline.start();
    await kcatSend(at.brokers, at.input, ["1", "2", "{ not JSON", "3", "4", "5", "6"]);
    await until(async () => text(await kcatRead(at.brokers, at.output)).includes("6"), {
      what: "the last output",
      timeoutMs: 60_000,
    });
    expect(text(await kcatRead(at.brokers, at.output))).toEqual(["1", "6"]);
    const dead = await kcatRead(at.brokers, `${at.input}.dead`);
    expect(text(dead)).toEqual(["2", "{ not JSON", "3", "4", "5"]);
    const errors = dead.map(({ headers }) => headers["dead-error"]);
    expect(errors[0]).toContain("two is too much");
    expect(errors[1]).toContain("not valid JSON");
    expect(dead[2]?.headers["dead-attempts"]).toBe("3");
    expect(errors[3]).toContain('no topic "nowhere"');
    expect(errors[4]).toContain("refused");
  });

  it("killed again and again, it shows no duplicate and loses nothing to a reader of committed records", async () => {
    await using at = await world(2);
    const count = 3000;
    const foreign = new ForeignProducer(at.brokers);
    const numbered = Array.from({ length: count }, (_, n) => ({ key: `k${n % 20}`, value: Buffer.from(String(n)) }));
    await foreign.send(at.input, numbered);
    await foreign[Symbol.asyncDispose]();
    const child = () =>
      spawnNode(new URL("../support/kafka-pipeline-process.ts", import.meta.url).pathname, [
        at.brokers.join(),
        at.input,
        at.output,
      ]);
    const seen = async (): Promise<number[]> => text(await kcatRead(at.brokers, at.output)).map(Number);
    let process = child();
    for (let kills = 0; kills < 4; kills++) {
      const before = process;
      await until(() => before.stdout.length >= 3, { what: "work before a kill", timeoutMs: 60_000 });
      // The next one is there already, waiting for the dead one's partitions.
      process = child();
      await process.waitForLine("started");
      await before.kill("SIGKILL");
    }
    await until(async () => new Set(await seen()).size === count, {
      what: "all outputs",
      timeoutMs: 40_000,
      intervalMs: 500,
    });
    await process.kill("SIGTERM");
    const got = await seen();
    expect(got.length).toBe(count);
    for (let key = 0; key < 20; key++) {
      const mine = got.filter((n) => n % 20 === key);
      expect(mine).toEqual(mine.toSorted((a, b) => a - b));
    }
  });

  it("a stray message of another producer is a message too", async () => {
    await using at = await world(1);
    const seen: HandledMessage[] = [];
    await at.pipeline((message) => void seen.push(message)).start();
    await kcatSend(at.brokers, at.input, ['{"plain":true}'], { headers: { tenant: "t-1" } });
    await until(() => seen.length === 1, { what: "the message", timeoutMs: 60_000 });
    expect(seen[0]).toMatchObject({
      type: at.input,
      stream: at.input,
      payload: { plain: true },
      headers: { tenant: "t-1" },
    });
  });
});

/** What a plain subscriber hands to its handler, up to "end". */
async function readBySubscriber(brokers: string[], topic: string): Promise<string[]> {
  const [consumer, producer] = [openConsumer(brokers, `plain-${topic}`), openProducer(brokers)];
  const subscriber = createKafkaSubscriber({ consumer, producer, topics: [topic] });
  const seen: string[] = [];
  await subscriber.start("plain", async ({ body }) => {
    seen.push(JSON.parse(Buffer.from(body as Uint8Array).toString()) as string);
    return { status: "done" };
  });
  await until(() => seen.includes("end"), { what: "the last record", timeoutMs: 60_000 });
  await subscriber.stop();
  await Promise.all([consumer.close(), producer.close()]);
  return seen;
}

/** Numbers 0 to 9, each in a transaction of one producer, the odd ones aborted; then "end" without one. */
async function tenTransactions(brokers: string[], topic: string): Promise<void> {
  const producer = openProducer(brokers, { transactionalId: `ten-${topic}`, retries: 50, retryDelay: 20 });
  const record = (value: string) => ({ topic, partition: 0, value: Buffer.from(JSON.stringify(value)) });
  for (let n = 0; n < 10; n++) {
    const transaction = await producer.beginTransaction({ producerId: -1n, producerEpoch: -1 });
    await transaction.send({ messages: [record(String(n))], acks: -1 });
    await (n % 2 === 0 ? transaction.commit() : transaction.abort());
  }
  await producer.close();
  const plain = openProducer(brokers);
  await plain.send({ messages: [record("end")], acks: -1 });
  await plain.close();
}
