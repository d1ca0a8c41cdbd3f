import type { AttemptError } from "../../core/contracts.ts";
import { WaitingKeys, type WaitingKey } from "../../lanes/waiting-keys.ts";
import type { LogMessage } from "./log-message.ts";

/** A waiting key and its row. */
export interface BlockedKey extends WaitingKey {
  readonly lane: number;
  readonly stream: string;
  /** "" for a message that needs no order; then `solo` is its position. */
  readonly key: string;
  readonly solo: string;
  /** The first message that waits; undefined while that is not known. */
  head: string | undefined;
  attempts: number;
  lastError: string | undefined;
  /** Errors not written yet. */
  errors: AttemptError[];
  /** There is a row for it. */
  stored: boolean;
  /** Differs from its row. */
  dirty: boolean;
}

export type LoadedKey = Omit<BlockedKey, "name" | "errors" | "stored" | "dirty" | "draining" | "route">;

/**
 * Keys are added as soon as a message fails and leave only when the settle that freed them has committed: until then
 * another owner could still deliver the earlier message.
 */
export class BlockedKeys extends WaitingKeys<BlockedKey> {
  readonly #unordered: ReadonlySet<string>;

  constructor(unordered: ReadonlySet<string>) {
    super(({ stored, dirty }) => stored && !dirty);
    this.#unordered = unordered;
  }

  nameOf(message: LogMessage): string {
    const key = message.key;
    // NUL cannot occur in a key: the outbox refuses it and PostgreSQL cannot store it.
    return key === null || this.#unordered.has(message.stream) || isTooLong(key) || isTooLong(message.stream)
      ? `\0${message.positionText}`
      : `${message.stream}\0${key}`;
  }

  of(message: LogMessage): BlockedKey | undefined {
    return this.get(this.nameOf(message));
  }

  has(message: LogMessage): boolean {
    return this.of(message) !== undefined;
  }

  ensure(message: LogMessage): BlockedKey {
    const name = this.nameOf(message);
    const known = this.get(name);
    if (known !== undefined) return known;
    const solo = name.startsWith("\0");
    return this.put({
      name,
      lane: message.lane,
      stream: isTooLong(message.stream) ? message.stream.slice(0, 256).toWellFormed() : message.stream,
      key: solo ? "" : message.key!,
      solo: solo ? message.positionText : "0",
      head: undefined,
      attempts: 0,
      dueAt: 0,
      held: false,
      lastError: undefined,
      errors: [],
      parked: 0,
      stored: false,
      dirty: true,
      draining: false,
      route: undefined,
    });
  }

  load(entry: LoadedKey): void {
    const name = entry.solo === "0" ? `${entry.stream}\0${entry.key}` : `\0${entry.solo}`;
    this.put({ ...entry, name, errors: [], stored: true, dirty: false, draining: false, route: undefined });
  }
}

/** No index could hold it. The outbox refuses such names, so only an INSERT by hand can have written it: it needs no order. */
function isTooLong(name: string): boolean {
  return name.length * 3 > MAX_BYTES && Buffer.byteLength(name) > MAX_BYTES;
}

const MAX_BYTES = 1024;
