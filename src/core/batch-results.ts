import type { PublishResult } from "./contracts.ts";

/** What the order of a message is decided by. */
export interface Keyed {
  readonly stream?: string | undefined;
  readonly key?: string | null | undefined;
}

export const PUBLISHED: PublishResult = { status: "published" };
export const HELD: PublishResult = { status: "held" };
export const NOT_TRIED: PublishResult = { status: "unavailable" };

/** Stream and key as one text: messages with the same text keep their order. Undefined: a message without a key, and no order. */
export function orderOf({ stream = "", key }: Keyed): string | undefined {
  return key == null ? undefined : `${stream}\0${key}`;
}

/** The places of messages by key, in order of first appearance; a message without a key is a group of its own. */
export function groupByKey(messages: readonly Keyed[]): number[][] {
  const groups: number[][] = [];
  const byKey = new Map<string, number[]>();
  for (let index = 0; index < messages.length; index++) {
    const order = orderOf(messages[index]!);
    const known = order === undefined ? undefined : byKey.get(order);
    if (known !== undefined) {
      known.push(index);
      continue;
    }
    const group = [index];
    if (order !== undefined) byKey.set(order, group);
    groups.push(group);
  }
  return groups;
}

/**
 * The results of a batch, and the rule that keeps the order of a key: once a message did not go through, no later one of
 * its key may be sent, and its result is `held`. As long as nothing has failed, the rule costs nothing per message.
 */
export class BatchResults {
  readonly #messages: readonly Keyed[];
  readonly #results: (PublishResult | undefined)[];
  /** By key: the place of its first message that did not go through. */
  readonly #failedAt = new Map<string, number>();

  constructor(messages: readonly Keyed[]) {
    this.#messages = messages;
    this.#results = Array.from({ length: messages.length });
  }

  /** Something did not go through. */
  get hasFailures(): boolean {
    return this.#failedAt.size > 0;
  }

  get(index: number): PublishResult | undefined {
    return this.#results[index];
  }

  /** Anything but `published` holds back what follows in its key. A later result replaces an earlier one. */
  set(index: number, result: PublishResult): void {
    this.#results[index] = result;
    if (result.status === "published") return;
    const order = orderOf(this.#messages[index]!);
    if (order === undefined) return;
    this.#failedAt.set(order, Math.min(index, this.#failedAt.get(order) ?? index));
  }

  /** An earlier message of its key did not go through. */
  isHeld(index: number): boolean {
    if (this.#failedAt.size === 0) return false;
    const order = orderOf(this.#messages[index]!);
    const failedAt = order === undefined ? undefined : this.#failedAt.get(order);
    return failedAt !== undefined && failedAt < index;
  }

  /** It has no result yet, and nothing holds it back. */
  isOpen(index: number): boolean {
    return this.#results[index] === undefined && !this.isHeld(index);
  }

  /** One result per message. What has none yet is held back behind a failed one of its key, or was not tried. */
  all(notTried: PublishResult = NOT_TRIED): PublishResult[] {
    return this.#results.map((result, index) => result ?? (this.isHeld(index) ? HELD : notTried));
  }
}
