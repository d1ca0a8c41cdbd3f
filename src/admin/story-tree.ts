import type { AttemptError, MessageReceipt, MessageStatus } from "../core/contracts.ts";
import type { Message } from "../core/message.ts";
import { textOrNull } from "../core/text-or-null.ts";

/** No text that can be looked for is longer. */
export const MAX_ID = 1000;

/** What a relay did with a message. `relay` is null where no relay has it: it is scheduled, or no relay reads its stream. */
export interface StoryDelivery {
  relay: string | null;
  status: MessageStatus;
  attempts: number;
  lastError: string | null;
  errors: AttemptError[];
  publishedAt: Date | null;
  deliverAt: Date | null;
}

/** A message as one store has it. An inbox that stores what it receives has it under a stream of its own. */
export interface StoryPlace extends Omit<Message, "position"> {
  store: string;
  position: bigint | null;
  deliveries: StoryDelivery[];
}

export interface StoryReceipt extends MessageReceipt {
  store: string;
}

/** A message over all stores, and what was enqueued because of it. */
export interface StoryMessage {
  id: string;
  /** Where it is, first where it was enqueued. Empty: in no store that was asked; its receipts and what it caused tell of it. */
  places: StoryPlace[];
  receipts: StoryReceipt[];
  /** What handlers of this message enqueued, oldest first. */
  caused: StoryMessage[];
}

/** The tree below a message, level by level, so that what is cut off is the farthest. A message is in it once. */
export function storyTree(
  known: ReadonlyMap<string, StoryPlace[]>,
  id: string,
  most: number,
): { root: StoryMessage; messages: StoryMessage[]; cut: boolean } {
  const causedBy = Map.groupBy(known.keys(), (one) => causeOf(known.get(one)));
  const create = (one: string): StoryMessage => ({ id: one, places: known.get(one) ?? [], receipts: [], caused: [] });
  const root = create(id);
  const messages = [root];
  const seen = new Set([id]);
  // Grows while it is walked.
  for (const message of messages) {
    for (const one of (causedBy.get(message.id) ?? []).toSorted(byTime(known))) {
      if (seen.has(one)) continue;
      if (messages.length >= most) return { root, messages, cut: true };
      seen.add(one);
      const caused = create(one);
      message.caused.push(caused);
      messages.push(caused);
    }
  }
  return { root, messages, cut: false };
}

function byTime(known: ReadonlyMap<string, StoryPlace[]>) {
  const time = (id: string): number => known.get(id)?.[0]?.createdAt.getTime() ?? 0;
  return (a: string, b: string): number => time(a) - time(b) || (a < b ? -1 : 1);
}

/** Any sender may have written the headers: only what can be an id is one. */
export function causeOf(places: readonly StoryPlace[] | undefined): string | undefined {
  for (const { headers } of places ?? []) {
    const cause = textOrNull(headers.causationId, MAX_ID);
    if (cause !== null) return cause;
  }
  return undefined;
}
