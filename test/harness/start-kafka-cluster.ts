import { randomBytes } from "node:crypto";
import { freePort } from "./free-port.ts";
import { type KafkaServer, startKafkaNode } from "./start-kafka.ts";

export interface KafkaCluster extends AsyncDisposable {
  readonly brokers: string[];
  /** By node id, from 1. */
  readonly nodes: ReadonlyMap<number, KafkaServer>;
  stop(): Promise<void>;
}

/** Three private nodes, each broker and controller; topics have three replicas of which two must be in sync. */
export async function startKafkaCluster(): Promise<KafkaCluster> {
  const ids = [1, 2, 3];
  const controllers = await Promise.all(ids.map(() => freePort()));
  const clusterId = randomBytes(16).toString("base64url");
  const voters = ids.map((id, i) => `${id}@127.0.0.1:${controllers[i]}`).join();
  const nodes = new Map<number, KafkaServer>();
  const stop = async (): Promise<void> => {
    await Promise.all([...nodes.values()].map((node) => node.stop()));
  };
  try {
    await Promise.all(
      ids.map(async (id, i) => {
        const settings = { ...SETTINGS, "node.id": String(id), "controller.quorum.voters": voters };
        nodes.set(id, await startKafkaNode(clusterId, controllers[i]!, settings));
      }),
    );
  } catch (error) {
    await stop();
    throw error;
  }
  const brokers = ids.flatMap((id) => nodes.get(id)!.brokers);
  return { brokers, nodes, stop, [Symbol.asyncDispose]: stop };
}

const SETTINGS = {
  "default.replication.factor": "3",
  "min.insync.replicas": "2",
  "offsets.topic.replication.factor": "3",
  "transaction.state.log.replication.factor": "3",
  "transaction.state.log.min.isr": "2",
  "share.coordinator.state.topic.replication.factor": "3",
  "share.coordinator.state.topic.min.isr": "2",
  "replica.lag.time.max.ms": "3000",
  "controller.quorum.election.timeout.ms": "1000",
  "controller.quorum.fetch.timeout.ms": "2000",
};
