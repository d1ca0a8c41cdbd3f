import { TxboxError } from "../core/errors.ts";
import type { IncomingMessage } from "../core/message.ts";
import { textOrNull } from "../core/text-or-null.ts";

/** Throws for what a caller without types may hand in. */
export function requireIncoming(message: IncomingMessage): void {
  const { body, headers } = message ?? {};
  const isBody = typeof body === "string" || (body as unknown) instanceof Uint8Array;
  if (isBody && typeof headers === "object" && headers !== null) return;
  const field = isBody ? "headers" : "body";
  throw new TxboxError("invalid_message", `inbox.handle was given a message without ${field}`, {
    field,
    fix: "Pass { id, type, body, headers }: the body as text or bytes, the headers as an object, which may be empty",
  });
}

/** Producers that know nothing of txbox often route by type. */
export function typeOf(message: IncomingMessage): string | undefined {
  return textOrNull(message.type) ?? textOrNull(message.routingKey) ?? undefined;
}
