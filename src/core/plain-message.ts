import type { IncomingMessage, Message } from "./message.ts";

/** A copy with fields of its own: a store may hand out messages that make theirs on demand, which a spread would miss. */
export function plainMessage(message: Message): Message {
  const { id, position, stream, type, key, aggregateType, aggregateId, body, headers, createdAt } = message;
  return { id, position, stream, type, key, aggregateType, aggregateId, body, headers, createdAt };
}

/** The same for a message from wherever it came; anything may be missing. */
export function plainIncoming(message: IncomingMessage): IncomingMessage {
  const { source, routingKey } = message;
  return { ...plainMessage(message as Message), ...(source === undefined ? {} : { source }), routingKey };
}
