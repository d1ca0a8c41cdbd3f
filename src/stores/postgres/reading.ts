import { CopiedMessage, copiedPosition, copiedSize } from "./copied-rows.ts";
import { RowMessage, sizeOfRow, type LogMessage } from "./log-message.ts";
import type { Row } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";

/** Messages of a window on their way from the server: the first can be had while the last are still to come. */
export class Reading {
  readonly #id: string;
  readonly #cur: string | undefined;
  readonly #lanes: readonly number[];
  /** How many were asked for. */
  readonly count: number;
  /** Bodies of more bytes were left out. */
  readonly inline: number;
  /** How many have come so far. */
  arrivals = 0;
  /** What comes after all of this. */
  next: Reading | undefined;
  /** What is left follows this position. */
  #after: string;
  /**
   * What is left: bodies may be large, so whatever was taken is not held any longer. Messages are made of them when they
   * are asked for: thousands of objects that wait would be copied by every collection of garbage.
   */
  readonly #sources: (Row | Buffer)[] = [];
  /** Where each begins, if it is among bytes. */
  readonly #starts: number[] = [];
  #bytes = 0;
  #ended = false;
  #failure: { error: unknown } | undefined;
  #wanted = Number.POSITIVE_INFINITY;
  #arrived: (() => void) | undefined;

  constructor({ id, cur, lanes, fetched }: Cursor, count: number, inline: number) {
    this.#id = id;
    this.#cur = cur;
    this.#lanes = lanes;
    this.#after = fetched;
    this.count = count;
    this.inline = inline;
  }

  /** The cursor wants next what is left here. Lanes in another array have changed meanwhile. */
  follows({ id, cur, lanes, fetched }: Cursor): boolean {
    return this.#id === id && this.#cur === cur && this.#lanes === lanes && this.#after === fetched;
  }

  add(source: Row | Buffer, at = 0): void {
    this.arrivals++;
    this.#bytes += Array.isArray(source) ? sizeOfRow(source) : copiedSize(source, at);
    this.#starts.push(at);
    if (this.#sources.push(source) >= this.#wanted) this.#arrived?.();
  }

  /** When this resolves, all have been added. */
  end(reading: Promise<unknown>): void {
    const ended = (failure?: { error: unknown }) => {
      this.#ended = true;
      this.#failure = failure;
      this.#arrived?.();
    };
    reading.then(
      () => ended(),
      (error: unknown) => ended({ error }),
    );
  }

  /** The first that are left, at most `limit`. Whether more follow is known then. */
  async first(limit: number): Promise<readonly LogMessage[]> {
    this.#wanted = limit + 1;
    if (!this.#ended && this.#sources.length < this.#wanted) {
      await new Promise<void>((resolve) => (this.#arrived = resolve));
      this.#arrived = undefined;
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    return this.#sources
      .slice(0, limit)
      .map((source, i) =>
        Array.isArray(source) ? new RowMessage(source) : new CopiedMessage(source, this.#starts[i]!),
      );
  }

  take(messages: readonly LogMessage[]): void {
    this.#sources.splice(0, messages.length);
    this.#starts.splice(0, messages.length);
    this.#after = messages.at(-1)?.ref ?? this.#after;
  }

  /** Nothing is left of it, or it failed. */
  get empty(): boolean {
    return this.#failure !== undefined || (this.#ended && this.#sources.length === 0);
  }

  /** All is here and half of it is gone, and more may follow. */
  get wantsNext(): boolean {
    const here = this.#ended && this.#failure === undefined && !this.complete;
    return here && this.next === undefined && this.#sources.length * 2 <= this.count;
  }

  get lastPosition(): string {
    const last = this.#sources.at(-1);
    if (last === undefined) return this.#after;
    return Array.isArray(last) ? last[0]! : copiedPosition(last, this.#starts.at(-1)!);
  }

  /** Nothing follows what was read. One that failed may have arrived in part, and says nothing about what follows. */
  get complete(): boolean {
    return this.#ended && this.#failure === undefined && this.arrivals < this.count;
  }

  /** Bytes of a message; undefined when there was none. */
  get average(): number | undefined {
    return this.arrivals === 0 ? undefined : Math.max(1, this.#bytes / this.arrivals);
  }
}
