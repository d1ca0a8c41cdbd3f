import { formatMs } from "../core/plain-words.ts";

export { formatMs, plural } from "../core/plain-words.ts";

export function formatTime(date: Date | null): string | null {
  return date === null
    ? null
    : date
        .toISOString()
        .replace("T", " ")
        .replace(/\.\d+Z$/, "Z");
}

/** How long ago, by the clock of this machine. */
export function formatAge(date: Date | null): string | null {
  return date === null ? null : `${formatMs(Date.now() - date.getTime())} ago`;
}

/** Messages per second: `0`, `0.3/s`, `1,234/s`. */
export function formatRate(perSecond: number): string {
  if (perSecond === 0) return "0";
  const shown = perSecond < 10 ? Math.max(0.1, Math.round(perSecond * 10) / 10) : Math.round(perSecond);
  return `${shown.toLocaleString("en-US")}/s`;
}
