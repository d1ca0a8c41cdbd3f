import type { Message } from "./message.ts";

/** What is to be known of headers as JSON, which are these bytes from here up to there. */
export type HeaderLook = (bytes: Uint8Array, from: number, to: number) => boolean;

/** A message whose headers are still bytes. Undefined: they are no longer. */
export interface HeaderBytes {
  lookAtHeaders(look: HeaderLook): boolean | undefined;
}

/** For a look at thousands of messages of which few have what is looked for. Undefined: only `headers` can tell. */
export function lookAtHeaders(message: Message & Partial<HeaderBytes>, look: HeaderLook): boolean | undefined {
  return message.lookAtHeaders?.(look);
}
