import { inheritedCausation, inheritInto } from "../../../core/causation.ts";
import { encodePayload } from "../../../core/codec.ts";
import { TxboxError } from "../../../core/errors.ts";
import type { Headers, Message } from "../../../core/message.ts";
import { rejectUnknownOptions } from "../../../core/options.ts";
import type { KafkaRecord } from "../kafka-envelope.ts";

/** What a pipeline's handler sends. */
export interface PipelineOutput {
  /** The topic. */
  stream: string;
  type: string;
  payload: unknown;
  key?: string;
  headers?: Headers;
  /** Default: made of the place of the input, so that it is the same whenever that is processed. */
  id?: string;
}

const FIELDS: readonly (keyof PipelineOutput)[] = ["stream", "type", "payload", "key", "headers", "id"];

/** Must be called while the input is being handled: it inherits that one's correlation and causes. */
export function outputMessage(output: PipelineOutput, input: KafkaRecord, n: number): Message {
  rejectUnknownOptions("send", output, FIELDS);
  const { stream, type, payload, key, headers = {}, id } = output;
  for (const [field, value] of Object.entries({ stream, type })) {
    if (typeof value === "string" && value !== "") continue;
    throw new TxboxError("invalid_message", `send: ${field} must be text`, { field, fix: `Give ${field} a value` });
  }
  const { body, contentType } = encodePayload(payload, headers.contentType);
  return {
    id: id ?? `${input.topic}/${input.partition}/${input.offset}/${n}`,
    position: input.offset,
    stream,
    type,
    key: key ?? null,
    aggregateType: null,
    aggregateId: null,
    body,
    headers: withCausation(headers, contentType),
    createdAt: new Date(),
  };
}

function withCausation(given: Headers, contentType: string | undefined): Headers {
  const headers = { ...given };
  const causation = inheritedCausation();
  if (causation !== undefined) {
    if (causation.correlationId !== undefined) headers.correlationId ??= causation.correlationId;
    inheritInto(headers, causation);
  }
  if (contentType !== undefined) headers.contentType = contentType;
  return headers;
}
