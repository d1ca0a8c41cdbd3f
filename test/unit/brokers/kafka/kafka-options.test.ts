import { Admin, Consumer, Producer, stringSerializers } from "@platformatic/kafka";
import { afterAll, describe, expect, test } from "vitest";
import {
  createKafkaPipeline,
  createKafkaPublisher,
  createKafkaSubscriber,
} from "../../../../src/brokers/kafka/index.ts";

const base = { clientId: "c", bootstrapBrokers: ["127.0.0.1:1"] };
const producer = new Producer(base);
const consumer = new Consumer({ ...base, groupId: "g", retries: false });
const admin = new Admin(base);
afterAll(async () => void (await Promise.all([producer.close(), consumer.close(), admin.close()])));
const handle = (): void => undefined;

/** Wrong on purpose, past the compiler. */
const wrong = (value: unknown): never => value as never;

describe("options of the Kafka adapter", () => {
  test.each<[string, () => unknown, RegExp]>([
    ["no producer", () => createKafkaPublisher(wrong({})), /producer has no method send.*new Producer\(/],
    ["not a producer", () => createKafkaPublisher(wrong({ producer: consumer })), /producer has no method send/],
    ["a slip", () => createKafkaPublisher(wrong({ producer, compresion: "gzip" })), /Did you mean "compression"/],
    ["no function", () => createKafkaPublisher(wrong({ producer, topic: "orders" })), /topic must be a function/],
    [
      "a wrong envelope",
      () => createKafkaPublisher(wrong({ producer, envelope: "avro" })),
      /"native" or "cloudevents"/,
    ],
    [
      "no partitions",
      () => createKafkaPublisher(wrong({ producer, declare: { admin } })),
      /declare\.partitions must be a whole number/,
    ],
    [
      "not an admin",
      () => createKafkaPublisher(wrong({ producer, declare: { admin: producer, partitions: 1 } })),
      /admin has no method createTopics/,
    ],
    [
      "serializers, which would turn every body into nothing",
      () => createKafkaPublisher({ producer: wrong(new Producer({ ...base, serializers: stringSerializers })) }),
      /has serializers.*without serializers/,
    ],
    ["no topics", () => createKafkaSubscriber(wrong({ consumer, producer })), /topics must be a name or a list/],
    ["no producer for dead letters", () => createKafkaSubscriber(wrong({ consumer, topics: ["t"] })), /producer/],
    [
      "a consumer that retries by itself",
      () => createKafkaSubscriber({ consumer: new Consumer({ ...base, groupId: "g" }), producer, topics: ["t"] }),
      /retries: false/,
    ],
    [
      "the group protocol that gives no time to end",
      () =>
        createKafkaSubscriber({
          consumer: new Consumer({ ...base, groupId: "g", retries: false, groupProtocol: "consumer" }),
          producer,
          topics: ["t"],
        }),
      /groupProtocol: "classic"/,
    ],
    [
      "more time to end than the session has",
      () => createKafkaSubscriber({ consumer, producer, topics: ["t"], sessionTimeoutMs: 1000, drainMs: 1000 }),
      /drainMs must be a whole number from 1 to 999/,
    ],
    [
      "a producer that is no function",
      () => createKafkaPipeline(wrong({ consumer, producer, topics: ["t"], handle })),
      /producer must be a function/,
    ],
    [
      "no handler",
      () => createKafkaPipeline(wrong({ consumer, producer: () => producer, topics: ["t"] })),
      /handle must be a function/,
    ],
  ])("%s: an error that names the option and the fix", (_, create, message) => {
    expect(create).toThrow(message);
  });

  test("the clients fit by their types", () => {
    expect(createKafkaPublisher({ producer, declare: { admin, partitions: 3 } }).keepsKeyOrder).toBe(true);
    expect(typeof createKafkaSubscriber({ consumer, producer, topics: ["t"] }).start).toBe("function");
    const create = (transactionalId: string): Producer => new Producer({ ...base, idempotent: true, transactionalId });
    expect(typeof createKafkaPipeline({ consumer, producer: create, topics: ["t"], handle }).start).toBe("function");
  });
});
