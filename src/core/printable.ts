/**
 * What a terminal obeys instead of showing, or what ends a line of a log: control characters with the C1 block, marks that
 * turn the direction of text, separators of lines, invisible characters, and halves of surrogate pairs.
 */
const UNSAFE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\u200B\u2060-\u2064\uFEFF\u{E0000}-\u{E007F}]/gu;

/** A value from outside as one line that is safe on a terminal and in a log: white space is a blank, the rest is escaped. */
export function printable(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(UNSAFE, escaped);
}

/** The same for text whose own lines and tabs stay. */
export function printableLines(text: string): string {
  return text.replaceAll(UNSAFE, (character) =>
    character === "\n" || character === "\t" ? character : escaped(character),
  );
}

/** JSON text with the same characters as \uXXXX, which every reader of JSON turns back. Line feeds stay: they indent. */
export function printableJson(json: string): string {
  return json.replaceAll(UNSAFE, (character) => (character === "\n" ? character : utf16(character)));
}

/** Whether the text is safe as it is; its own lines and tabs are. */
export function isPrintable(text: string): boolean {
  return printableLines(text) === text;
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code > 0xffff ? `\\u{${hex(code)}}` : `\\u${hex(code)}`;
}

function utf16(character: string): string {
  return Array.from({ length: character.length }, (_, i) => `\\u${hex(character.charCodeAt(i))}`).join("");
}

function hex(code: number): string {
  return code.toString(16).toUpperCase().padStart(4, "0");
}
