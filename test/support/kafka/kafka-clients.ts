import { Admin, Consumer, Producer } from "@platformatic/kafka";
import { until } from "../../harness/deadline.ts";

let clients = 0;
const clientId = (): string => `txbox-test-${process.pid}-${++clients}`;

/** As the documentation says to build it, with less patience. */
export function openProducer(bootstrapBrokers: string[], more: object = {}): Producer {
  return new Producer({
    clientId: clientId(),
    bootstrapBrokers,
    idempotent: true,
    retries: 4,
    retryDelay: 100,
    connectTimeout: 2000,
    ...more,
  });
}

export function openConsumer(bootstrapBrokers: string[], groupId: string, more: object = {}): Consumer {
  return new Consumer({
    clientId: clientId(),
    bootstrapBrokers,
    groupId,
    retries: false,
    connectTimeout: 2000,
    ...more,
  });
}

export async function createTopic(
  bootstrapBrokers: string[],
  topic: string,
  partitions = 4,
  configs: Readonly<Record<string, string>> = {},
): Promise<void> {
  const admin = new Admin({ clientId: clientId(), bootstrapBrokers, retries: 20, retryDelay: 100 });
  try {
    await admin.createTopics({
      topics: [topic],
      partitions,
      replicas: 1,
      configs: Object.entries(configs).map(([name, value]) => ({ name, value })),
    });
    const hasLeaders = async (): Promise<boolean> => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
      if (topics.get(topic)?.partitions.every(({ leader }) => leader >= 0) !== true) return false;
      // A leader may not know yet that it is one; producers that are not idempotent would then write twice.
      const all = Array.from({ length: partitions }, (_, partitionIndex) => ({ partitionIndex, timestamp: -1n }));
      await admin.listOffsets({ topics: [{ name: topic, partitions: all }] });
      return true;
    };
    await until(() => hasLeaders().catch(() => false), { what: `leaders of ${topic}` });
  } finally {
    await admin.close();
  }
}

/** Resolves when no broker knows it any more. */
export async function deleteTopic(bootstrapBrokers: string[], topic: string): Promise<void> {
  const admin = new Admin({ clientId: clientId(), bootstrapBrokers, retries: 20, retryDelay: 100 });
  try {
    await admin.deleteTopics({ topics: [topic] });
    const isGone = async (): Promise<boolean> => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true, retries: 0 });
      return topics.get(topic) === undefined;
    };
    await until(() => isGone().catch(() => true), { what: `the end of ${topic}` });
  } finally {
    await admin.close();
  }
}

/** Breaks every connection of a client, as a network does. */
export function cutConnections(client: Producer | Consumer): void {
  for (const [, connection] of client.connections) connection.socket.destroy();
}
