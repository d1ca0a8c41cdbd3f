import type { Message } from "./message.ts";

/** What `look` says of the headers as JSON, which are these bytes from here up to there. */
export type HeaderLook = (bytes: Uint8Array, from: number, to: number) => boolean;

/** A message that has its headers as bytes still lets them be looked at. */
export const LOOK_AT_HEADERS = Symbol("txbox: look at the headers as they are stored");

/** For a look at thousands of messages of which few have what is looked for. Undefined: only `headers` can tell. */
export function lookAtHeaders(message: Message, look: HeaderLook): boolean | undefined {
  return (message as { [LOOK_AT_HEADERS]?: (look: HeaderLook) => boolean | undefined })[LOOK_AT_HEADERS]?.(look);
}
