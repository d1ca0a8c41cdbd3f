import type { Message } from "./message.ts";

/** The headers of a message as JSON, where a store has them as text and nobody has asked for them yet. */
export const HEADER_TEXT = Symbol("txbox: headers as JSON");

/** For a look at thousands of messages of which few have what is looked for. Undefined: only `headers` can tell. */
export function headerTextOf(message: Message): string | null | undefined {
  return (message as { [HEADER_TEXT]?: string | null })[HEADER_TEXT];
}
