import { WaitingKeys, type WaitingKey } from "../../lanes/waiting-keys.ts";
import type { StoredMessage } from "./mongodb-document.ts";

/** A waiting key, whose messages are parked documents. */
export interface BlockedKey extends WaitingKey {
  readonly lane: number;
  readonly stream: string;
  /** Null for a message that needs no order; then `solo` is its id. */
  readonly key: string | null;
  readonly solo: unknown;
  /** Settles under way that change it. */
  writes: number;
}

/**
 * Keys are added as soon as a message fails and leave only when the settle that freed them is written: until then another
 * owner could still deliver the earlier message.
 */
export class BlockedKeys extends WaitingKeys<BlockedKey> {
  readonly #unordered: ReadonlySet<string>;

  constructor(unordered: ReadonlySet<string>) {
    super(({ writes, parked }) => writes === 0 && parked > 0);
    this.#unordered = unordered;
  }

  isOrdered(message: StoredMessage): boolean {
    return message.key !== null && !this.#unordered.has(message.stream);
  }

  has(message: StoredMessage): boolean {
    return this.of(message) !== undefined;
  }

  of(message: StoredMessage): BlockedKey | undefined {
    return this.get(this.#nameOf(message));
  }

  named(stream: string, key: string): BlockedKey | undefined {
    return this.get(`${stream}\0${key}`);
  }

  ensure(message: StoredMessage): BlockedKey {
    const found = this.of(message);
    if (found !== undefined) return found;
    const ordered = this.isOrdered(message);
    return this.load({
      lane: message.lane,
      stream: message.stream,
      key: ordered ? message.key : null,
      solo: ordered ? undefined : message.document["_id"],
      dueAt: Number.NEGATIVE_INFINITY,
      held: false,
      parked: 0,
    });
  }

  load(entry: Omit<BlockedKey, "name" | "draining" | "writes" | "route">): BlockedKey {
    const name = entry.key === null ? `\0${String(entry.solo)}` : `${entry.stream}\0${entry.key}`;
    return this.put({ ...entry, name, draining: false, writes: 0, route: undefined });
  }

  /** Nothing of it waits any more, and nothing holds it. */
  freeIfEmpty(key: BlockedKey): void {
    if (key.parked === 0 && !key.held && !key.draining && key.writes === 0) this.delete(key);
  }

  #nameOf(message: StoredMessage): string {
    // NUL cannot occur in a stream or key: the outbox refuses it.
    return this.isOrdered(message) ? `${message.stream}\0${message.key}` : `\0${message.id}`;
  }
}
