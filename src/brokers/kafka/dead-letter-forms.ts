import { deadHeaders } from "../../core/dead-letter.ts";
import type { KafkaRecords, KafkaRecordToSend } from "./kafka-client.ts";
import { headersOf, placeId, type KafkaRecord } from "./kafka-envelope.ts";
import { partitionOf } from "./partition.ts";

export interface Reason {
  by: string;
  error: unknown;
  attempts: number;
}

/** What is sent for one dead letter, one after another. */
export type DeadLetterForm = readonly KafkaRecords[];

/** A key that is longer is left out of a letter that must be short. */
const SHORT_KEY_BYTES = 1000;

/**
 * The forms that a dead letter can have, the best first: each is tried when the topic refuses those before. The record
 * with its reasons, compressed if it does not fit otherwise; then the record as it came, and a second one with the
 * reasons, which says where the first came from; at last the reasons alone. The last has a key in any case, and fits.
 */
export function deadLetterForms(
  record: KafkaRecord,
  topic: string,
  partitions: number,
  spread: number,
  { by, error, attempts }: Reason,
): DeadLetterForm[] {
  const { key, value } = record;
  const place = { topic, partition: key === null ? spread % partitions : partitionOf(key, partitions) };
  const body = { ...place, ...(key === null ? {} : { key }), ...(value === null ? {} : { value }) };
  const reasons = headersOf(deadHeaders(by, error, attempts));
  const own = ownHeaders(record);
  const whole: KafkaRecordToSend = { ...body, headers: new Map([...own, ...reasons]) };
  const asItCame: KafkaRecordToSend = { ...body, headers: own };
  const from = {
    "dead-topic": record.topic,
    "dead-partition": `${record.partition}`,
    "dead-offset": `${record.offset}`,
  };
  const reason: KafkaRecordToSend = {
    ...place,
    key: key !== null && key.length <= SHORT_KEY_BYTES ? key : Buffer.from(placeId(record)),
    value: Buffer.alloc(0),
    headers: new Map([...reasons, ...headersOf(from)]),
  };
  const compression = "gzip";
  return [
    [{ messages: [whole] }],
    [{ messages: [whole], compression }],
    [{ messages: [asItCame] }, { messages: [reason] }],
    [{ messages: [asItCame], compression }, { messages: [reason] }],
    [{ messages: [reason] }],
  ];
}

/** Without the reasons of an earlier death: they are out of date. */
function ownHeaders({ headers }: KafkaRecord): Map<Buffer, Buffer> {
  const own = new Map<Buffer, Buffer>();
  for (const [name, text] of headers) if (name !== null && !isReason(name)) own.set(name, text ?? Buffer.alloc(0));
  return own;
}

function isReason(name: Buffer): boolean {
  return /^dead-(?:error|attempts|by|at|topic|partition|offset)$/.test(name.toString());
}
