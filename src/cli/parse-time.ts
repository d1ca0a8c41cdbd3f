import { UsageError } from "./usage-error.ts";

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `90s`, `5m`, `1h`, `7d` in milliseconds; undefined for another text. */
function durationMs(text: string): number | undefined {
  const [, amount = "", unit = ""] = /^(\d{1,9})(s|m|h|d)$/.exec(text) ?? [];
  return unit === "" ? undefined : Number(amount) * UNITS[unit]!;
}

export function parseDuration(flag: string, text: string, command: string): number {
  const ms = durationMs(text);
  if (ms !== undefined) return ms;
  throw new UsageError(`${flag} must be a time such as 90s, 5m, 1h or 7d, got "${text}"`, { command });
}

/** A point in time: `1h` is an hour ago, or a date such as 2026-01-31T08:00:00Z. `or`: what else the flag takes. */
export function parseMoment(flag: string, text: string, command: string, or = ""): Date {
  const ago = durationMs(text);
  if (ago !== undefined) return new Date(Date.now() - ago);
  const time = new Date(text);
  if (/^\d{4}-\d{2}-\d{2}/.test(text) && !Number.isNaN(time.getTime())) return time;
  const forms = `${or}a time ago such as 1h or 7d, or a time such as 2026-01-31T08:00:00Z`;
  throw new UsageError(`${flag} must be ${forms}, got "${text}"`, { command });
}

/** A point in time to come: `2h` is in two hours, or a date such as 2026-01-31T08:00:00Z. */
export function parseStart(flag: string, text: string, command: string): Date {
  const ahead = durationMs(text);
  if (ahead !== undefined) return new Date(Date.now() + ahead);
  const time = new Date(text);
  if (/^\d{4}-\d{2}-\d{2}/.test(text) && !Number.isNaN(time.getTime())) return time;
  throw new UsageError(`${flag} must be a time such as 2026-01-31T08:00:00Z, or 2h for in two hours, got "${text}"`, {
    command,
  });
}
