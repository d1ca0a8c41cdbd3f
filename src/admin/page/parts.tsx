import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";
import type { Level } from "../page-api.ts";
import type { ServerError } from "./server.ts";
import { ago, brief, exactly, formatMs, visible } from "./words.ts";

/** A text from outside: never HTML, cut when long, all of it on hover. */
export function Text({ text, most = 120, none = "–" }: { text: string | null; most?: number; none?: string }): VNode {
  if (text === null || text === "") return <span class="faint">{none}</span>;
  const isCut = text.length > most;
  return (
    <span class="text" {...(isCut ? { title: visible(text.slice(0, 2000)) } : {})}>
      {brief(text, most)}
    </span>
  );
}

export function Time({ at, now }: { at: number | null; now?: number }): VNode {
  if (at === null) return <span class="faint">–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={exactly(at)}>
      {ago(at, now)}
    </time>
  );
}

/** For how long, as people say it; the exact beginning on hover. */
export function Span({ since, now }: { since: number; now: number }): VNode {
  return (
    <time dateTime={new Date(since).toISOString()} title={`since ${exactly(since)}`}>
      {formatMs(Math.max(0, Math.round((now - since) / 1000) * 1000)).replace(".0 s", " s")}
    </time>
  );
}

const SIGNS: Readonly<Record<Level, string>> = { good: "✓", attention: "!", bad: "✕", unknown: "?" };
const SAID: Readonly<Record<Level, string>> = {
  good: "well",
  attention: "needs attention",
  bad: "needs a person",
  unknown: "not known",
};

/** Colour, sign and a word for those who see neither. */
export function Sign({ level }: { level: Level }): VNode {
  return (
    <span class={`sign ${level}`}>
      <span aria-hidden="true">{SIGNS[level]}</span>
      <span class="unseen">{SAID[level]}: </span>
    </span>
  );
}

const STATUS_LEVEL: Readonly<Record<string, Level>> = {
  published: "good",
  processed: "good",
  dead: "bad",
  failed: "bad",
  retrying: "attention",
};

export function Status({ status }: { status: string }): VNode {
  return <span class={`status ${STATUS_LEVEL[status] ?? "plain"}`}>{visible(status)}</span>;
}

/** A command that does the same, or advice in words, to be taken along. */
export function Command({ text, prose = false }: { text: string; prose?: boolean }): VNode {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    void copyText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <span class="command">
      {prose ? (
        <span>{visible(text)}</span>
      ) : (
        <code>
          {visible(text)
            .split(" ")
            .map((word, i) => (
              <>
                {i === 0 ? "" : " "}
                <span>{word}</span>
              </>
            ))}
        </code>
      )}
      <button
        type="button"
        class="quiet"
        onClick={copy}
        aria-label={`Copy ${prose ? "" : "the command "}${visible(text)}`}
      >
        {copied ? "Copied" : "Copy"}
      </button>
    </span>
  );
}

/** The clipboard needs HTTPS or this machine; elsewhere a text field does. */
export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** What to do when there is nothing to see. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): VNode {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Problem({ error, onRetry }: { error: ServerError; onRetry?: () => void }): VNode {
  return (
    <div class="problem" role="alert">
      <Sign level="bad" />
      <span>{error.words}</span>
      {onRetry === undefined ? null : (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Missing({ missing }: { missing: readonly { store: string; error: string }[] }): VNode | null {
  if (missing.length === 0) return null;
  return (
    <div class="problem" role="status">
      <Sign level="attention" />
      <span>
        {missing.map(({ store, error }) => (
          <span key={store}>
            The store {store} gave no answer, so what it has is missing here: <Text text={error} />{" "}
          </span>
        ))}
      </span>
    </div>
  );
}

export function Loading(): VNode {
  return (
    <p class="faint loading" role="status">
      Looking…
    </p>
  );
}

/** The last minutes as a small line. */
export function Spark({ points, label }: { points: readonly number[]; label: string }): VNode {
  const most = Math.max(1, ...points);
  const step = points.length > 1 ? 100 / (points.length - 1) : 100;
  const line = points.map((value, i) => `${(i * step).toFixed(1)},${(22 - (value / most) * 20).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={line} />
    </svg>
  );
}

export interface Option {
  value: string;
  title: string;
}

/** One filter: what it is, and its values. */
export function Choice({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: string;
  options: readonly Option[];
  onChange: (value: string) => void;
}): VNode {
  return (
    <label class={`chip ${value === "" ? "" : "on"}`}>
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.title}
          </option>
        ))}
      </select>
    </label>
  );
}
