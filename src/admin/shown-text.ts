import { hideSecrets } from "../core/hide-secrets.ts";
import type { Headers } from "../core/message.ts";
import type { Contents, Shown } from "./page-api.ts";

/** Longer texts are cut before they go to the page, whatever a message holds. */
const MOST_TEXT = 2000;
const MOST_BODY = 64_000;
const MASK = "•••";

/** Fields whose values are not shown, wherever they stand. */
const SECRET_NAME =
  /(?:^|[^a-z])(?:pass(?:word|wd|phrase)?|pwd|secret|token|authorization|cookie|credentials?|api[-_]?key|private[-_]?key|cvv|cvc|iban|card[-_]?number|pan)s?(?:$|[^a-z])/;

export function isSecretName(name: string): boolean {
  // `accessToken` has its words apart by a capital letter.
  return SECRET_NAME.test(name.replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase());
}

/** The beginning of a long text, and how long all of it is. */
export function cut(text: string, most: number = MOST_TEXT): Shown {
  if (text.length <= most) return { text, length: null };
  return { text: text.slice(0, most).toWellFormed(), length: text.length };
}

/** One field: cut with a note of its length. What is as long as that is no name to act by. */
export function shortText(text: string, most: number = MOST_TEXT): string {
  const { text: shown, length } = cut(text, most);
  return length === null ? shown : `${shown}… (${length.toLocaleString("en-US")} characters)`;
}

export function shortOrNull(text: string | null): string | null {
  return text === null ? null : shortText(text);
}

/** What a driver, a broker or a handler said: without URLs and passwords. */
export function errorText(error: string): string {
  return hideSecrets(shortText(error));
}

export function errorOrNull(error: string | null): string | null {
  return error === null ? null : errorText(error);
}

/** What a user function gets to see and gives back to be shown. */
export interface RedactedMessage {
  /** The decoded JSON, a text, or bytes. */
  readonly payload: unknown;
  readonly headers: Headers;
}

export interface RedactInput extends RedactedMessage {
  readonly store: string;
  readonly stream: string;
  readonly type: string;
}

/** Gives what may be shown of a message; what it throws hides the message. */
export type Redact = (message: RedactInput) => RedactedMessage;

/** "hide": bodies and headers never leave the server. */
export type RedactOption = "hide" | Redact;

export interface MessageContents {
  readonly stream: string;
  readonly type: string;
  readonly body: string | Uint8Array;
  readonly headers: Headers;
}

/** Body and headers as the page may show them. */
export function contentsOf(store: string, message: MessageContents, redact: RedactOption | undefined): Contents {
  if (redact === "hide") return hidden("Bodies and headers are hidden on this page");
  const { stream, type, body, headers } = message;
  let payload: unknown = typeof body === "string" ? parsed(body) : body;
  let shownHeaders: unknown = headers;
  if (redact !== undefined) {
    try {
      const given = redact({ store, stream, type, payload, headers });
      ({ payload, headers: shownHeaders } = given);
    } catch {
      return hidden("The redact function of this page threw, so nothing is shown");
    }
  }
  const masking = { hit: redact !== undefined };
  const safeHeaders = cut(jsonOf(masked(shownHeaders, masking, 0)), MOST_BODY);
  if (payload instanceof Uint8Array) {
    const all = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
    const shown = cut(all.subarray(0, MOST_BODY).toString("base64"), MOST_BODY);
    const length = all.byteLength > MOST_BODY ? all.byteLength : shown.length;
    return { kind: "base64", body: { text: shown.text, length }, headers: safeHeaders, masked: masking.hit };
  }
  const isText = typeof payload === "string" && typeof body === "string" && redact === undefined && payload === body;
  const shownBody = cut(isText ? (payload as string) : jsonOf(masked(payload, masking, 0)), MOST_BODY);
  return { kind: isText ? "text" : "json", body: shownBody, headers: safeHeaders, masked: masking.hit };
}

function hidden(why: string): Contents {
  return {
    kind: "hidden",
    body: { text: why, length: null },
    headers: { text: "", length: null },
    masked: true,
  };
}

type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const { parse, rawJSON } = JSON as unknown as {
  readonly parse: (text: string, reviver: Reviver) => unknown;
  readonly rawJSON: (text: string) => unknown;
};

/** JSON with numbers as they were written; a text that is not JSON stays as it is. */
function parsed(body: string): unknown {
  try {
    return parse(body, (_, value, { source }) =>
      typeof value === "number" && source !== undefined && String(value) !== source ? rawJSON(source) : value,
    );
  } catch {
    return body;
  }
}

function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value, (_, item: unknown) => (typeof item === "bigint" ? item.toString() : item), 2) ?? "";
  } catch {
    return "This cannot be shown as JSON";
  }
}

const MOST_DEPTH = 100;

function masked(value: unknown, masking: { hit: boolean }, depth: number): unknown {
  if (typeof value !== "object" || value === null || isRawJson(value)) return value;
  if (depth > MOST_DEPTH) return "…";
  if (Array.isArray(value)) return value.map((item: unknown) => masked(item, masking, depth + 1));
  const shown: [string, unknown][] = [];
  for (const [name, item] of Object.entries(value)) {
    const isSecret = item !== null && item !== undefined && typeof item !== "boolean" && isSecretName(name);
    if (isSecret) masking.hit = true;
    shown.push([name, isSecret ? MASK : masked(item, masking, depth + 1)]);
  }
  return Object.fromEntries(shown);
}

function isRawJson(value: object): boolean {
  return (JSON as unknown as { isRawJSON?: (value: object) => boolean }).isRawJSON?.(value) === true;
}

/** Texts that may hold what a server said. */
export function hideErrors<T extends Readonly<Record<string, string>>>(texts: T): T {
  return Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, errorText(text)])) as T;
}
