import { expect, test } from "vitest";
import type { KafkaRecord } from "../../../../../src/brokers/kafka/kafka-envelope.ts";
import { PartitionWorker } from "../../../../../src/brokers/kafka/pipeline/partition-worker.ts";
import { readOptions, SUBSCRIBER_OPTIONS, subscriberSettings } from "../../../../../src/adapter/index.ts";
import { PermanentError } from "../../../../../src/core/errors.ts";

const record = (topicId: string, value: string): KafkaRecord => ({
  topic: "t",
  topicId,
  partition: 0,
  offset: 5n,
  epoch: 0,
  key: null,
  value: Buffer.from(value),
  headers: [],
});

test("a record of a topic that was made anew is not given up for one of the old topic at the same offset", async () => {
  const never = new AbortController().signal;
  const handled: unknown[] = [];
  const written: KafkaRecord[] = [];
  const worker = new PartitionWorker(
    {
      group: "g",
      settings: subscriberSettings(readOptions("test", {}, SUBSCRIBER_OPTIONS)),
      maxBatch: 10,
      handle({ payload }) {
        handled.push(payload);
        if (payload === "bad") throw new PermanentError("never");
      },
      place: async () => [],
      async forms({ topicId }) {
        // While its dead letter is being made, the partition turns out to be another topic's.
        if (topicId === "first") {
          worker.clear();
          worker.push([record("second", '"good"')]);
        }
        return [[{ messages: [] }]];
      },
      write: async (_, last) => void written.push(last),
      reset: async () => undefined,
      taken: () => undefined,
    },
    never,
    never,
  );
  worker.push([record("first", '"bad"')]);
  await worker.idle;
  expect(handled).toEqual(["bad", "good"]);
  expect(written.map(({ topicId }) => topicId)).toEqual(["second"]);
});
