import type { StoredMessage } from "./mongodb-document.ts";

/** A key whose first message failed: later ones are parked behind it. */
export interface BlockedKey {
  readonly name: string;
  readonly lane: number;
  readonly stream: string;
  /** Null for a message that needs no order; then `solo` is its id. */
  readonly key: string | null;
  readonly solo: unknown;
  /** Monotonic time at which it is tried again. */
  dueAt: number;
  /** A dead letter holds it until it is requeued or discarded. */
  held: boolean;
  /** Messages parked, written or about to be; those that are tried at this moment included. */
  parked: number;
  /** Its messages are claimed at this moment. */
  draining: boolean;
  /** Settles under way that change it. */
  writes: number;
}

/**
 * The owner's picture of what is blocked. Keys are added as soon as a message fails and leave only when the settle that
 * freed them is written: until then another owner could still deliver the earlier message.
 */
export class BlockedKeys {
  readonly #keys = new Map<string, BlockedKey>();
  readonly #unordered: ReadonlySet<string>;
  parked = 0;

  constructor(unordered: ReadonlySet<string>) {
    this.#unordered = unordered;
  }

  get size(): number {
    return this.#keys.size;
  }

  isOrdered(message: StoredMessage): boolean {
    return message.key !== null && !this.#unordered.has(message.stream);
  }

  has(message: StoredMessage): boolean {
    return this.#keys.has(this.#nameOf(message));
  }

  get(message: StoredMessage): BlockedKey | undefined {
    return this.#keys.get(this.#nameOf(message));
  }

  named(stream: string, key: string): BlockedKey | undefined {
    return this.#keys.get(`${stream}\0${key}`);
  }

  ensure(message: StoredMessage): BlockedKey {
    const name = this.#nameOf(message);
    const found = this.#keys.get(name);
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

  load(entry: Omit<BlockedKey, "name" | "draining" | "writes">): BlockedKey {
    const name = entry.key === null ? `\0${String(entry.solo)}` : `${entry.stream}\0${entry.key}`;
    const before = this.#keys.get(name);
    if (before !== undefined) this.parked -= before.parked;
    const key = { ...entry, name, draining: false, writes: 0 };
    this.#keys.set(name, key);
    this.parked += key.parked;
    return key;
  }

  park(key: BlockedKey, count: number): void {
    key.parked += count;
    this.parked += count;
  }

  delete(key: BlockedKey): void {
    if (this.#keys.get(key.name) !== key) return;
    this.#keys.delete(key.name);
    this.parked -= key.parked;
  }

  clear(): void {
    this.#keys.clear();
    this.parked = 0;
  }

  /** Keys whose turn it is, those due for longest first. */
  due(now: number, limit: number): BlockedKey[] {
    const due: BlockedKey[] = [];
    for (const key of this.#keys.values()) {
      if (!key.held && !key.draining && key.writes === 0 && key.parked > 0 && key.dueAt <= now) due.push(key);
    }
    return due.toSorted((a, b) => a.dueAt - b.dueAt).slice(0, limit);
  }

  nextDueAt(): number | undefined {
    let next = Number.POSITIVE_INFINITY;
    for (const { held, draining, parked, dueAt } of this.#keys.values()) {
      if (!held && !draining && parked > 0 && dueAt < next) next = dueAt;
    }
    return next === Number.POSITIVE_INFINITY ? undefined : next;
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
