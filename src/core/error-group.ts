import { createHash } from "node:crypto";

/** A longer error says nothing more about its kind. */
const MAX_INPUT = 2000;
const MAX_KEPT = 400;

/** Where an error was thrown; the line differs with every release. */
const STACK_LINE = /^\s*at\s.*$/gm;
/** A number that is the error's own name, as that of an HTTP answer; it stays. */
const STATUS = /\b((?:status|status code|http|code)[\s:=]{1,3})([1-5]\d\d)\b/gi;
/** Digits of a status stand as letters until all other numbers are replaced. */
const KEPT_DIGIT = 0xe000;

const DOUBLE_QUOTED = /"(?:[^"\\\n]|\\.)*"/g;
const BACK_QUOTED = /`[^`\n]*`/g;
const TYPOGRAPHIC = /[“„«][^”“»\n]*[”“»]/g;
/** An apostrophe stands between letters; a quote does not. */
const SINGLE_QUOTED = /(?<![\p{L}\d])'[^'\n]*'(?![\p{L}\d])/gu;

const URL_TEXT = /\b[a-z][a-z\d+.-]{1,15}:\/\/[^\s"'<>)\]]+/gi;
const EMAIL = /[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g;
const UUID = /\b[\da-f]{8}-?[\da-f]{4}-?[\da-f]{4}-?[\da-f]{4}-?[\da-f]{12}\b/gi;
/** A word of eight characters or more with a digit in it: hexadecimal, base 32, base 64, or a name made of a number. */
const LONG_ID = /(?<![\p{L}\d_])(?=[\p{L}_]*\d)[\p{L}\d_]{8,}(?![\p{L}\d_])/gu;
const IPV6 = /(?<![\w:])(?=[:\da-f]*\d)[\da-f]{0,4}(?::[\da-f]{0,4}){2,8}(?!\w)/gi;
const HEX = /\b0x[\da-f]+\b/gi;
const NUMBER = /[+-]?\d+(?:[.,:_]\d+)*/g;

/**
 * The group of a dead letter: 12 hexadecimal digits that are equal for messages of one type whose errors differ only in
 * numbers, ids, addresses and quoted values. The same in every store and every version that has no other text here.
 */
export function errorGroup(type: string, error: string): string {
  return createHash("sha256")
    .update(`${type}\0${kindOfError(error)}`)
    .digest("hex")
    .slice(0, 12);
}

/** An error with signs in the place of all that differs from one message to the next. */
export function kindOfError(error: string): string {
  const kept = error
    .slice(0, MAX_INPUT)
    .replaceAll(STACK_LINE, "")
    .replaceAll(STATUS, (_, word: string, status: string) => word + lettersFor(status))
    .replaceAll(DOUBLE_QUOTED, "§")
    .replaceAll(BACK_QUOTED, "§")
    .replaceAll(TYPOGRAPHIC, "§")
    .replaceAll(SINGLE_QUOTED, "§")
    .replaceAll(URL_TEXT, "@")
    .replaceAll(EMAIL, "@")
    .replaceAll(UUID, "#")
    .replaceAll(IPV6, "#")
    .replaceAll(HEX, "#")
    .replaceAll(LONG_ID, "#")
    .replaceAll(NUMBER, "#")
    // Of an address or a list of ids, how many parts it has says nothing.
    .replaceAll(/#(?:[\s,;.:/|-]*#)+/g, "#")
    .replaceAll(/§(?:\s*,\s*§)+/g, "§")
    .replaceAll(/\s+/g, " ")
    .trim();
  return kept
    .slice(0, MAX_KEPT)
    .replaceAll(/[\u{e000}-\u{e009}]/gu, (letter) => String(letter.charCodeAt(0) - KEPT_DIGIT));
}

function lettersFor(digits: string): string {
  return Array.from(digits, (digit) => String.fromCharCode(KEPT_DIGIT + Number(digit))).join("");
}
