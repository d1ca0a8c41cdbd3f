import { describe, expect, test } from "vitest";
import type { KafkaSendOptions } from "../../../../src/brokers/kafka/index.ts";
import { KafkaBatch } from "../../../../src/brokers/kafka/kafka-batch.ts";
import { sample } from "../../../../src/testing/broker/sample-message.ts";

interface Refusal {
  readonly code: number;
  readonly records?: readonly number[];
}

/** Answers for each partition of a request; what is accepted is in `log`, record batch by record batch. */
function broker(answer: (values: readonly string[], partition: number) => Refusal | undefined | "silence") {
  const log: string[] = [];
  let requests = 0;
  async function send({ messages }: KafkaSendOptions): Promise<unknown> {
    requests++;
    const byPartition = Map.groupBy(messages, ({ partition }) => partition ?? 0);
    const responses: object[] = [];
    let refused = false;
    let silent = false;
    for (const [partition, records] of byPartition) {
      const values = records.map(({ value }) => String(value));
      const refusal = answer(values, partition);
      if (refusal === "silence") {
        silent = true;
        continue;
      }
      refused ||= refusal !== undefined;
      if (refusal === undefined) log.push(`${partition}:${values.join("")}`);
      const recordErrors = (refusal?.records ?? []).map((batchIndex) => ({ batchIndex }));
      const one = { index: partition, errorCode: refusal?.code ?? 0, recordErrors };
      responses.push({ name: "t", partitionResponses: [one] });
    }
    if (!refused && !silent) return undefined;
    throw Object.assign(new Error("Producing messages failed."), {
      errors: [Object.assign(new Error("response"), { response: { responses } })],
    });
  }
  const producer = { send, metadata: () => Promise.reject(new Error("unused")), close: async () => undefined };
  return { producer, log, requests: () => requests };
}

/** Messages as "<partition><key><n>". */
async function produce(
  { producer }: Pick<ReturnType<typeof broker>, "producer">,
  names: readonly string[],
  options: {
    maxBatchBytes?: number;
    timeoutMs?: number;
    signal?: AbortSignal;
    barriers?: readonly number[];
    mayBegin?: () => boolean;
  } = {},
) {
  const { maxBatchBytes = 1000, timeoutMs = 1000, signal = new AbortController().signal, barriers = [] } = options;
  const messages = names.map((name) => sample("s", 0, { key: name[1] === "-" ? null : String(name[1]) }));
  const { mayBegin = () => true } = options;
  const settings = { producer, compression: undefined, maxBatchBytes, timeoutMs };
  const batch = new KafkaBatch({ messages, signal, mayBegin }, settings);
  names.forEach((name, index) => {
    if (barriers.includes(index)) batch.barrier();
    const record = { topic: "t", partition: Number(name[0]), value: Buffer.from(`${name.slice(1)} `) };
    batch.add({ index, record, size: 10 });
  });
  const results = await batch.run();
  return { statuses: results.map(({ status }) => status).join(" "), results, batch };
}

const TOO_LARGE = { code: 10 };
const NO_LEADER = { code: 5 };

describe("a batch to Kafka", () => {
  test("goes as one request, one record batch per partition", async () => {
    const to = broker(() => undefined);
    const { statuses } = await produce(to, ["0a1", "1b1", "0a2"]);
    expect(statuses).toBe("published published published");
    expect(to.log).toEqual(["0:a1 a2 ", "1:b1 "]);
    expect(to.requests()).toBe(1);
  });

  test("is cut where a record batch is full, and the next part waits for the confirm of the first", async () => {
    const to = broker(() => undefined);
    await produce(to, ["0a1", "0a2", "0a3", "1b1"], { maxBatchBytes: 20 });
    expect(to.log).toEqual(["0:a1 a2 ", "1:b1 ", "0:a3 "]);
  });

  test("begins no further request once its lease is over", async () => {
    const to = broker(() => undefined);
    const names = ["0a1", "0a2", "0a3", "1b1"];
    let asked = 0;
    const { statuses } = await produce(to, names, { maxBatchBytes: 10, mayBegin: () => ++asked < 2 });
    expect(statuses).toBe("published unavailable unavailable published");
    expect(to.requests()).toBe(1);
  });

  test("a partition without a leader gets nothing more; others go on", async () => {
    const to = broker((_, partition) => (partition === 0 ? NO_LEADER : undefined));
    const { statuses } = await produce(to, ["0a1", "0a2", "1b1", "1b2"], { maxBatchBytes: 10 });
    expect(statuses).toBe("unavailable held published published");
    expect(to.log).toEqual(["1:b1 ", "1:b2 "]);
  });

  test.each([
    [3, "no such topic"],
    [5, "no leader"],
    [19, "too few replicas"],
    [20, "too few replicas to keep it"],
    [29, "no right to it"],
    [56, "a broken disk"],
  ])("code %i (%s) is the topic's outage, not that of all", async (code) => {
    const to = broker((_, partition) => (partition === 0 ? { code } : undefined));
    const { results } = await produce(to, ["0a1", "1b1"]);
    expect(results).toMatchObject([{ status: "unavailable", route: "t" }, { status: "published" }]);
    expect((results[0] as { error: Error }).error.message).toMatch(/^Kafka refused it for t, partition 0: /);
  });

  test.each([13, 31, 47, 90])("code %i is an outage of all partitions", async (code) => {
    const { results } = await produce(
      broker(() => ({ code })),
      ["0a1"],
    );
    expect(results[0]?.status).toBe("unavailable");
    expect(results[0]).not.toHaveProperty("route");
  });

  test("a topic that the client cannot find its way to keeps no other from being sent", async () => {
    const sent: string[][] = [];
    async function send({ messages }: KafkaSendOptions): Promise<unknown> {
      const topics = [...new Set(messages.map(({ topic }) => topic))];
      sent.push(topics);
      if (topics.includes("gone"))
        throw Object.assign(new Error("metadata failed"), { cause: new Error("Unknown topic gone.") });
      const partitions = [{ partitionIndex: 1, errorCode: 5 }];
      const response = { topics: [{ name: "lame", errorCode: 0, partitions }] };
      if (topics.includes("lame")) throw Object.assign(new Error("Received response with error"), { response });
      return undefined;
    }
    const producer = { ...broker(() => undefined).producer, send };
    const settings = { producer, compression: undefined, maxBatchBytes: 1000, timeoutMs: 1000 };
    const topics = ["fine", "gone", "lame", "fine"];
    const messages = topics.map((topic) => sample(topic, 0));
    const batch = new KafkaBatch({ messages, signal: new AbortController().signal, mayBegin: () => true }, settings);
    for (const [index, topic] of topics.entries()) {
      const record = { topic, partition: 0, value: Buffer.from("1") };
      batch.add({ index, record, size: 10 });
    }
    expect(await batch.run()).toMatchObject([
      { status: "published" },
      { status: "unavailable", route: "gone" },
      { status: "unavailable", route: "lame" },
      { status: "published" },
    ]);
    expect(sent).toEqual([["fine", "gone", "lame"], ["fine", "lame"], ["fine"]]);
  });

  test("what brokers confirmed while others failed is published", async () => {
    const produced = { offsets: [{ topic: "t", partition: 1 }] };
    const send = () => Promise.reject(Object.assign(new Error("a broker is gone"), { produced }));
    const { statuses } = await produce({ producer: { ...broker(() => undefined).producer, send } }, ["0a1", "1b1"]);
    expect(statuses).toBe("unavailable published");
  });

  test("what no answer came for is not known to be published", async () => {
    const to = broker((_, partition) => (partition === 0 ? "silence" : undefined));
    expect((await produce(to, ["0a1", "1b1"])).statuses).toBe("unavailable published");
  });

  test("a refused record batch is narrowed down to the one at fault; its key waits, its neighbours go", async () => {
    const to = broker((values) => (values.includes("a2 ") ? TOO_LARGE : undefined));
    const { statuses } = await produce(to, ["0a1", "0b1", "0a2", "0b2", "0a3", "0-1"]);
    expect(statuses).toBe("published published rejected published held published");
    expect(to.log.join("")).not.toContain("a3");
  });

  test("records that the broker names need no narrowing, and earlier ones of their key go", async () => {
    const to = broker((values) => (values.includes("a2 ") ? { code: 87, records: [1] } : undefined));
    const { statuses } = await produce(to, ["0a1", "0a2", "0b1", "0a3"]);
    expect(statuses).toBe("published rejected published held");
    expect(to.requests()).toBe(2);
    expect(to.log).toEqual(["0:a1 b1 "]);
  });

  test("an error of no known kind counts as an attempt", async () => {
    const to = broker(() => ({ code: -1 }));
    expect((await produce(to, ["0a1"])).statuses).toBe("failed");
  });

  test("behind a barrier nothing of a key goes when an earlier message failed elsewhere", async () => {
    const to = broker((_, partition) => (partition === 0 ? NO_LEADER : undefined));
    const { statuses } = await produce(to, ["0a1", "1b1", "1a2", "1b2"], { barriers: [2] });
    expect(statuses).toBe("unavailable published held published");
    expect(to.log).toEqual(["1:b1 ", "1:b2 "]);
  });

  test("without an answer in time all is unavailable, and the client is still busy with it", async () => {
    const answered = Promise.withResolvers<undefined>();
    const producer = { ...broker(() => undefined).producer, send: () => answered.promise };
    const { statuses, batch } = await produce({ producer }, ["0a1", "0a2"], { timeoutMs: 20 });
    expect(statuses).toBe("unavailable unavailable");
    let idle = false;
    void batch.idle.then(() => (idle = true));
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(idle).toBe(false);
    answered.resolve(undefined);
    await batch.idle;
  });
});
