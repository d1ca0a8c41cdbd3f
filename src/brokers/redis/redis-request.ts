import type { RedisArgument } from "./plain-connection.ts";
import { NAME_END, type EncodedEntry } from "./redis-envelope.ts";
import type { RedisConnection } from "./redis-link.ts";
import type { RedisPublisherSettings } from "./redis-publisher-options.ts";
import { ADD } from "./redis-scripts.ts";

export interface Entry extends EncodedEntry {
  /** Of its message in the batch. */
  readonly index: number;
  readonly streamKey: string;
  readonly bytes: number;
  /** Some value in it may be more than this server takes. */
  readonly large: boolean;
}

/** How many entries were added, and why the next one was not. */
export interface Added {
  readonly added: number;
  readonly failure: string | undefined;
}

/** The failure of a request whose forerunner was not done whole. */
export const HELD = "HELD";

/** Its place among requests that are sent at once. */
export interface Baton {
  readonly key: string;
  /** What the request before has to have left; "" for the first. */
  readonly after: string;
  /** What to leave for the next; "" for the last. */
  readonly pass: string;
}

export async function addEntries(
  connection: RedisConnection,
  entries: readonly Entry[],
  { declare, trim }: Pick<RedisPublisherSettings, "declare" | "trim">,
  { key, after, pass }: Baton,
): Promise<Added> {
  const shapes = new Numbers();
  const streams = new Numbers();
  const values: RedisArgument[] = [];
  for (const entry of entries) {
    values.push(shapes.of(entry.shape), streams.of(entry.streamKey));
    for (const value of entry.values) values.push(value);
  }
  const args: RedisArgument[] = [declare ? "1" : "0", ...trim, after, pass, String(shapes.all.length)];
  for (const shape of shapes.all) {
    const names = shape.split(NAME_END);
    args.push(String(names.length), ...names);
  }
  for (const value of values) args.push(value);
  const reply = (await connection.run(ADD, [key, ...streams.all], args)) as [number, Buffer?];
  return { added: reply[0], failure: reply[1]?.toString() };
}

/** Texts by the order of their first appearance, from 1. */
class Numbers {
  readonly all: string[] = [];
  readonly #numbers = new Map<string, string>();

  of(text: string): string {
    let number = this.#numbers.get(text);
    if (number === undefined) {
      number = String(this.all.push(text));
      this.#numbers.set(text, number);
    }
    return number;
  }
}
