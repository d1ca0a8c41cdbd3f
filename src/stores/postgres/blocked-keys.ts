import type { AttemptError } from "../../core/contracts.ts";
import type { LogMessage } from "./log-message.ts";

/** A key whose first message failed: later ones are parked behind it. */
export interface BlockedKey {
  readonly name: string;
  readonly lane: number;
  readonly stream: string;
  /** "" for a message that needs no order; then `solo` is its position. */
  readonly key: string;
  readonly solo: string;
  /** The first message that waits; undefined while that is not known. */
  head: string | undefined;
  attempts: number;
  /** Monotonic time; Infinity while a dead letter blocks the key. */
  dueAt: number;
  lastError: string | undefined;
  /** Errors not written yet. */
  errors: AttemptError[];
  /** Messages parked, written or about to be. */
  parked: number;
  /** There is a row for it. */
  stored: boolean;
  /** Differs from its row. */
  dirty: boolean;
  /** Its messages are claimed at this moment. */
  draining: boolean;
}

/**
 * The owner's picture of what is blocked. Keys are added as soon as a message fails and leave only when the settle that
 * freed them has committed: until then another owner could still deliver the earlier message.
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

  nameOf(message: LogMessage): string {
    const key = message.key;
    // NUL cannot occur in a key: the outbox refuses it and PostgreSQL cannot store it.
    return key === null || this.#unordered.has(message.stream)
      ? `\0${message.positionText}`
      : `${message.stream}\0${key}`;
  }

  has(message: LogMessage): boolean {
    return this.#keys.has(this.nameOf(message));
  }

  ensure(message: LogMessage): BlockedKey {
    const name = this.nameOf(message);
    let entry = this.#keys.get(name);
    if (entry === undefined) {
      const solo = name.startsWith("\0");
      entry = {
        name,
        lane: message.lane,
        stream: message.stream,
        key: solo ? "" : message.key!,
        solo: solo ? message.positionText : "0",
        head: undefined,
        attempts: 0,
        dueAt: 0,
        lastError: undefined,
        errors: [],
        parked: 0,
        stored: false,
        dirty: true,
        draining: false,
      };
      this.#keys.set(name, entry);
    }
    return entry;
  }

  load(entry: Omit<BlockedKey, "name" | "errors" | "stored" | "dirty" | "draining">): void {
    const name = entry.solo === "0" ? `${entry.stream}\0${entry.key}` : `\0${entry.solo}`;
    this.#keys.set(name, { ...entry, name, errors: [], stored: true, dirty: false, draining: false });
    this.parked += entry.parked;
  }

  park(entry: BlockedKey, count: number): void {
    entry.parked += count;
    this.parked += count;
  }

  delete(entry: BlockedKey): void {
    this.#keys.delete(entry.name);
  }

  clear(): void {
    this.#keys.clear();
    this.parked = 0;
  }

  dirtyOf(lanes: ReadonlySet<number>): BlockedKey[] {
    return [...this.#keys.values()].filter((entry) => entry.dirty && lanes.has(entry.lane));
  }

  /** Keys whose turn it is, those due for longest first. */
  due(now: number, limit: number): BlockedKey[] {
    const due: BlockedKey[] = [];
    for (const entry of this.#keys.values()) {
      if (!entry.draining && entry.stored && !entry.dirty && entry.dueAt <= now) due.push(entry);
    }
    return due.length > 1 ? due.toSorted((a, b) => a.dueAt - b.dueAt).slice(0, limit) : due;
  }

  nextDueAt(): number | undefined {
    let next = Number.POSITIVE_INFINITY;
    for (const entry of this.#keys.values()) {
      if (!entry.draining && entry.stored && entry.dueAt < next) next = entry.dueAt;
    }
    return next === Number.POSITIVE_INFINITY ? undefined : next;
  }
}
