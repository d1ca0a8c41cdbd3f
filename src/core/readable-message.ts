import { isCausationPath } from "./causation.ts";
import { describeError } from "./errors.ts";
import type { Message } from "./message.ts";

/** Why a message cannot be read: its row was not written by an outbox. Undefined when it can. */
export function whyUnreadable(message: Message): string | undefined {
  try {
    void message.body;
    const { contentType, traceparent, causationPath } = message.headers;
    for (const [name, value] of Object.entries({ contentType, traceparent }))
      if (value !== undefined && typeof value !== "string") return `headers.${name} is not a text`;
    const isPath = causationPath === undefined || isCausationPath(causationPath);
    return isPath ? undefined : "headers.causationPath is not a list of pairs";
  } catch (error) {
    return describeError(error);
  }
}

/** A copy with fields of its own; headers and body that cannot be read are empty. What is stored stays as it is. */
export function readableMessage(message: Message): Message {
  return { ...readableFields(message), position: message.position };
}

/** The same without its position: one that is scheduled has none yet. */
export function readableFields(message: Message): Omit<Message, "position"> {
  const { id, stream, type, key, aggregateType, aggregateId, createdAt } = message;
  const headers = orElse(() => message.headers, { correlationId: id });
  const body = orElse<string | Uint8Array>(() => message.body, new Uint8Array(0));
  return { id, stream, type, key, aggregateType, aggregateId, body, headers, createdAt };
}

function orElse<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
