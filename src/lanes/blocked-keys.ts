import type { Stored, StoredKey } from "./lane-port.ts";
import { WaitingKeys, type WaitingKey } from "./waiting-keys.ts";

/** A waiting key and what is stored of it. */
export interface BlockedKey extends WaitingKey {
  readonly lane: number;
  readonly stream: string;
  /** Null for a message that needs no order; then `single` is its reference. */
  readonly key: string | null;
  readonly single: unknown;
  /** The first message that waits; undefined while that is not known. */
  head: unknown;
  /** Failed attempts of that one. */
  attempts: number;
  lastError: string | undefined;
  /** Errors not written yet. */
  errors: string[];
  /** The store has it. */
  stored: boolean;
  /** Settlements that change it and are not written yet. */
  unwritten: number;
}

/**
 * Keys are added as soon as a message fails and leave only when the settlement that freed them is written: until then
 * another owner could still deliver the earlier message.
 */
export class BlockedKeys extends WaitingKeys<BlockedKey> {
  readonly #unordered: ReadonlySet<string>;

  constructor(unordered: readonly string[]) {
    super(({ unwritten, parked }) => unwritten === 0 && parked > 0);
    this.#unordered = new Set(unordered);
  }

  of(message: Stored): BlockedKey | undefined {
    return this.get(this.#nameOf(message));
  }

  has(message: Stored): boolean {
    return this.of(message) !== undefined;
  }

  /** The key of a message, which is blocked from now on. */
  ensure(message: Stored): BlockedKey {
    const known = this.of(message);
    if (known !== undefined) return known;
    const ordered = this.#isOrdered(message);
    return this.put({
      name: this.#nameOf(message),
      lane: message.lane,
      stream: message.stream,
      key: ordered ? message.key : null,
      single: ordered ? null : message.ref,
      head: undefined,
      attempts: 0,
      lastError: undefined,
      errors: [],
      parked: 0,
      dueAt: 0,
      held: false,
      draining: false,
      route: undefined,
      stored: false,
      unwritten: 0,
    });
  }

  load(stored: StoredKey, now: number): BlockedKey {
    const { lane, stream, key, single, head, attempts, lastError, parked, dueInMs, held } = stored;
    return this.put({
      name: key === null ? singleName(single) : orderedName(stream, key),
      lane,
      stream,
      key,
      single,
      head,
      attempts,
      lastError,
      errors: [],
      parked,
      dueAt: now + dueInMs,
      held,
      draining: false,
      route: undefined,
      stored: true,
      unwritten: 0,
    });
  }

  #isOrdered({ key, stream, keyless }: Stored): boolean {
    return key !== null && !this.#unordered.has(stream) && keyless !== true;
  }

  #nameOf(message: Stored): string {
    return this.#isOrdered(message) ? orderedName(message.stream, message.key!) : singleName(message.ref);
  }
}

// NUL cannot occur in a stream or key: the outbox refuses it.
const orderedName = (stream: string, key: string): string => `${stream}\0${key}`;
const singleName = (ref: unknown): string => `\0${String(ref)}`;
