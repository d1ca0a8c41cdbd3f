import { laneOf, LANES } from "../../core/lane.ts";
import type { Message } from "../../core/message.ts";

/**
 * `orders` and `order_created` make `orders.order_created`; with partitions, `orders.3.order_created`. Dots part
 * tokens; what a subject cannot hold is percent-encoded.
 */
export function subjectOf({ stream, type, key }: Message, partitions?: number): string {
  const partition = partitions === undefined ? "" : `${partitionOf(key, partitions)}.`;
  return `${subjectPart(stream)}.${partition}${subjectPart(type)}`;
}

/** The partition of a key: the same in every process and version. */
export function partitionOf(key: string | null, partitions: number): number {
  return laneOf(key) % partitions;
}

/** No more partitions than keys can be told apart by. */
export const MAX_PARTITIONS: number = LANES;

export function subjectPart(text: string): string {
  if (/^(?![$.])(?:[\w$-]|\.(?!\.|$))+$/.test(text)) return text;
  const escaped = text
    .toWellFormed()
    .replaceAll(/[^\x21-\x24\x26-\x29\x2b-\x3d\x3f-\x7e]/gu, (char) => percent(char))
    .replaceAll(/^\$|^\.|\.(?=\.)|\.$/g, (char) => percent(char));
  return escaped === "" ? "%00" : escaped;
}

/** What names a JetStream stream or consumer: no dots, wildcards, slashes or white space. */
export function resourceName(text: string): string {
  return subjectPart(text).replaceAll(/[./\\]/g, (char) => percent(char));
}

function percent(char: string): string {
  return Array.from(Buffer.from(char), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
}

/** A subject that messages can be published to. */
export function isSubject(value: unknown): value is string {
  return typeof value === "string" && /^[^\s.*>]+(?:\.[^\s.*>]+)*$/.test(value) && !value.includes("\0");
}

/** Whether a subject matches a filter with `*` and `>`. */
export function matchesFilter(subject: string, filter: string): boolean {
  const [words, pattern] = [subject.split("."), filter.split(".")];
  for (const [i, token] of pattern.entries()) {
    if (token === ">") return words.length > i;
    if (words[i] === undefined || (token !== "*" && token !== words[i])) return false;
  }
  return words.length === pattern.length;
}
