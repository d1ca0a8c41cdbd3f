import type { KafkaConsumer } from "./kafka-client.ts";

export const EARLIEST = -2n;
export const LATEST = -1n;

/** The offset at an end of a partition's log. */
export async function edgeOf(
  consumer: KafkaConsumer,
  topic: string,
  partition: number,
  timestamp: bigint,
): Promise<bigint> {
  const offsets = await consumer.listOffsets({ topics: [topic], partitions: { [topic]: [partition] }, timestamp });
  return offsets.get(topic)?.[partition] ?? 0n;
}
