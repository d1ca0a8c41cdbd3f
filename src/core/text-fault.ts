/** What is wrong with a text that every store has to hold, worded to follow the name of its field. */
export interface TextFault {
  readonly what: string;
  readonly fix: (field: string) => string;
}

/** Undefined for one that is not empty, not too long, without NUL and well-formed. */
export function textFault(value: string, maxBytes: number): TextFault | undefined {
  if (value === "") {
    return { what: "is empty", fix: (field) => `Give ${field} a value, or leave it out if it is optional` };
  }
  if (value.length * 3 > maxBytes && Buffer.byteLength(value) > maxBytes) {
    const what = `has ${Buffer.byteLength(value)} bytes, at most ${maxBytes} fit`;
    return { what, fix: (field) => `Shorten ${field}` };
  }
  if (value.includes("\0")) {
    return { what: "has a NUL character", fix: () => "Remove it: databases cannot store it" };
  }
  if (!value.isWellFormed()) {
    const fix = "Cut texts between characters, or call toWellFormed()";
    return { what: "has half of a surrogate pair", fix: () => fix };
  }
  return undefined;
}

/** Of a stream, a type, an id. */
export const MAX_NAME_BYTES = 200;
