export { formatMs, plural } from "../core/plain-words.ts";

export function formatTime(date: Date | null): string | null {
  return date === null
    ? null
    : date
        .toISOString()
        .replace("T", " ")
        .replace(/\.\d+Z$/, "Z");
}
