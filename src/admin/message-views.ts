import type { BlockedKey, DeadLetter, MessageInfo } from "../core/contracts.ts";
import type { BlockedView, LetterView, MessageView } from "./page-api.ts";
import { errorOrNull, errorText, shortOrNull, shortText } from "./shown-text.ts";

/** A row of the table of messages. */
export function messageView(store: string, message: MessageInfo): MessageView {
  const { correlationId } = message.headers;
  return {
    store,
    id: shortText(message.id),
    position: message.position?.toString() ?? null,
    stream: shortText(message.stream),
    type: shortText(message.type),
    key: shortOrNull(message.key),
    aggregate: aggregateOf(message),
    correlationId: typeof correlationId === "string" ? shortText(correlationId) : null,
    createdAt: message.createdAt.getTime(),
    deliverAt: message.deliverAt?.getTime() ?? null,
    relay: message.relay,
    status: message.status,
    attempts: message.attempts,
    lastError: errorOrNull(message.lastError),
    publishedAt: message.publishedAt?.getTime() ?? null,
  };
}

export function aggregateOf({
  aggregateType,
  aggregateId,
}: Pick<MessageInfo, "aggregateType" | "aggregateId">): string | null {
  if (aggregateId === null) return null;
  return shortText(aggregateType === null ? aggregateId : `${aggregateType}:${aggregateId}`);
}

export function letterView(store: string, letter: DeadLetter): LetterView {
  return {
    store,
    relay: letter.relay,
    id: shortText(letter.id),
    position: letter.position.toString(),
    stream: shortText(letter.stream),
    type: shortText(letter.type),
    key: shortOrNull(letter.key),
    state: letter.state,
    command: letter.command,
    attempts: letter.attempts,
    lastError: errorText(letter.lastError),
    errors: letter.errors.slice(-20).map(({ at, error }) => ({ at: Date.parse(at), error: errorText(error) })),
    diedAt: letter.diedAt.getTime(),
    createdAt: letter.createdAt.getTime(),
    edited: letter.edited,
  };
}

export function blockedView(store: string, blocked: BlockedKey): BlockedView {
  const { relay, attempts, heldByDead, waiting } = blocked;
  return {
    store,
    relay,
    stream: shortText(blocked.stream),
    key: shortOrNull(blocked.key),
    position: blocked.position?.toString() ?? null,
    id: shortOrNull(blocked.id),
    attempts,
    lastError: errorOrNull(blocked.lastError),
    heldByDead,
    waiting,
    since: blocked.since?.getTime() ?? null,
    nextAttemptAt: blocked.nextAttemptAt?.getTime() ?? null,
  };
}
