import { formatMs } from "../../core/plain-words.ts";

export { formatMs, plural } from "../../core/plain-words.ts";

/** How long ago, as people say it. */
export function ago(at: number, now: number = Date.now()): string {
  const ms = now - at;
  if (ms < -2000) return `in ${rounded(-ms)}`;
  return ms < 2000 ? "just now" : `${rounded(ms)} ago`;
}

function rounded(ms: number): string {
  return formatMs(ms < 120_000 ? Math.round(ms / 1000) * 1000 : ms).replace(".0 s", " s");
}

/** To the millisecond, in the time of the reader's machine and in UTC. */
export function exactly(at: number): string {
  const time = new Date(at);
  return `${time.toLocaleString()} (${time.toISOString()})`;
}

export function count(n: number): string {
  return n.toLocaleString("en-US");
}

export function rate(perSecond: number | null): string {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0/s";
  return perSecond < 10 ? `${perSecond.toFixed(1)}/s` : `${count(Math.round(perSecond))}/s`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(0)} KiB`;
  if (n < 1024 ** 3) return `${(n / 1024 ** 2).toFixed(1)} MiB`;
  return `${(n / 1024 ** 3).toFixed(1)} GiB`;
}

const UNSEEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\u200B\u2060-\u2064\uFEFF\u{E0000}-\u{E007F}]/gu;

/** Characters that are not seen or that change what stands beside them, as symbols: ␀ ␛ ⟨U+202E⟩. */
export function visible(text: string, { lines = false } = {}): string {
  return text.replaceAll(UNSEEN, (character) => {
    if (lines && (character === "\n" || character === "\t")) return character;
    const code = character.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** The beginning of a text from outside, with its length when it was cut. */
export function brief(text: string, most: number): string {
  const shown = visible(text.length > most ? text.slice(0, most) : text);
  return text.length > most ? `${shown}… (${count(text.length)} characters)` : shown;
}
