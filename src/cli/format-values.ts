/** A span of time as people say it: `850 ms`, `12 s`, `3 min`, `5 h`, `2 days`. */
export function formatMs(ms: number): string {
  const amount = Math.max(0, ms);
  if (amount < 1000) return `${Math.round(amount)} ms`;
  if (amount < 120_000) return `${(amount / 1000).toFixed(amount < 10_000 ? 1 : 0)} s`;
  if (amount < 7_200_000) return `${Math.round(amount / 60_000)} min`;
  if (amount < 172_800_000) return `${Math.round(amount / 3_600_000)} h`;
  return `${Math.round(amount / 86_400_000)} days`;
}

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

export function plural(n: number | bigint, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en-US")} ${Number(n) === 1 ? one : many}`;
}
