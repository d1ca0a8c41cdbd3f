import { setTimeout as sleep } from "node:timers/promises";
import { invalidOption, type OptionSpec } from "../../adapter/index.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { requireClient, type KafkaAdmin, type KafkaMetadata, type KafkaMetadataOptions } from "./kafka-client.ts";
import { explain, hasApiError, isUnknownTopic, unknownTopic } from "./kafka-errors.ts";

/** How topics that are missing are created. */
export interface DeclareTopics {
  admin: KafkaAdmin;
  /** More than one lets keys go side by side; raising it later moves keys to other partitions. */
  partitions: number;
  /** Default: what the broker is set to. */
  replicas?: number;
  /** Topic settings, as `{ "retention.ms": "604800000" }`. */
  configs?: Readonly<Record<string, string>>;
}

export const DECLARE: OptionSpec<DeclareTopics> = {
  read(of, name, value) {
    if (typeof value !== "object" || value === null) {
      throw invalidOption(of, name, "declare must be an object", "Pass declare: { admin, partitions }");
    }
    const declare = value as DeclareTopics;
    rejectUnknownOptions(`${of} ${name}`, declare, ["admin", "partitions", "replicas", "configs"]);
    requireClient(of, "admin", declare.admin, ["createTopics"]);
    requireInteger(of, `${name}.partitions`, declare.partitions, 1, 100_000);
    if (declare.replicas !== undefined) requireInteger(of, `${name}.replicas`, declare.replicas, 1, 32_767);
    return declare;
  },
};

const BROKER_DEFAULT = -1;

/** Creates the topics; those that exist stay as they are. */
export async function declareTopics(topics: readonly string[], declare: DeclareTopics): Promise<void> {
  const { admin, partitions, replicas = BROKER_DEFAULT, configs = {} } = declare;
  for (const topic of topics) {
    try {
      await admin.createTopics({
        topics: [topic],
        partitions,
        replicas,
        configs: Object.entries(configs).map(([name, value]) => ({ name, value })),
      });
    } catch (error) {
      if (!hasApiError(error, "TOPIC_ALREADY_EXISTS")) throw explain(error);
    }
  }
}

interface TopicSource {
  metadata(options: KafkaMetadataOptions): Promise<KafkaMetadata>;
}

/** A broker that has just started or is behind may not know a topic yet: one that it denies this often is missing. */
const LOOKS = 3;
const BETWEEN_LOOKS_MS = 150;

/**
 * The number of partitions of a topic. Throws a PermanentError when there is none, an UnavailableError when no broker
 * answers.
 */
export async function partitionsOf(topic: string, source: TopicSource, declare?: DeclareTopics): Promise<number> {
  for (let look = 1; ; look++) {
    try {
      const { topics } = await source.metadata({ topics: [topic], autocreateTopics: false, retries: 0 });
      const count = topics.get(topic)?.partitionsCount ?? 0;
      if (count > 0) return count;
    } catch (error) {
      if (!isUnknownTopic(error)) throw explain(error);
    }
    if (look === 1 && declare !== undefined) await declareTopics([topic], declare);
    if (look === LOOKS) throw unknownTopic(topic, "declare");
    await sleep(BETWEEN_LOOKS_MS);
  }
}
