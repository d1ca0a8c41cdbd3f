import { openRecord } from "../../../src/brokers/kafka/kafka-envelope.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import type { ConnectRecord, DebeziumEngine } from "../../harness/index.ts";
import { type Committed, digestOf } from "./random-transactions.ts";

const HEARTBEATS = "__debezium-heartbeat.txbox";

/** All but heartbeats. */
export const messagesOf = (engine: DebeziumEngine): ConnectRecord[] =>
  engine.records.filter(({ topic }) => topic !== HEARTBEATS);

/** As the Kafka subscriber of txbox reads it. */
export function opened({ topic, key, value, headers }: ConnectRecord): IncomingMessage {
  const named = headers.map(([name, bytes]) => [Buffer.from(name), bytes] as const);
  return openRecord({ topic, topicId: "", partition: 0, offset: 0n, epoch: 0, key, value, headers: named });
}

export const idOf = (record: ConnectRecord): string => String(opened(record).id);

/** Without repeats, in order. */
export function firstsBy(engine: DebeziumEngine): Committed[] {
  const all = new Map<string, Committed>();
  for (const record of messagesOf(engine)) {
    const message = opened(record);
    const { id, stream, type, key, aggregateType, aggregateId, headers, body } = message;
    if (all.has(String(id))) continue;
    all.set(String(id), {
      id: String(id),
      stream: String(stream),
      type: String(type),
      key: key ?? null,
      aggregateType: aggregateType ?? null,
      aggregateId: aggregateId ?? null,
      headers,
      body: digestOf(body),
    });
  }
  return [...all.values()];
}
