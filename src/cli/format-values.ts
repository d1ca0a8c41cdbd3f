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

/** `0 B`, `12 KiB`, `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value < 10 && unit > 0 ? Math.round(value * 10) / 10 : Math.round(value)} ${units[unit]}`;
}
