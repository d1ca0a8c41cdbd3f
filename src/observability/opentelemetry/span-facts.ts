import { describeError, errorCode } from "../../core/errors.ts";
import { hideSecrets } from "../../core/hide-secrets.ts";
import type { PublishOperation } from "../../core/events.ts";
import type { IncomingMessage, Message } from "../../core/message.ts";
import { textOrNull } from "../../core/text-or-null.ts";
import { ERROR, type OtelAttributes, type OtelSpan } from "./opentelemetry-api.ts";

/** What messages are called that come from no broker that is known by name. */
export const OWN_SYSTEM = "txbox";

const MAX_NAMES = 500;

/** Names of streams are few. If others send more of them than that, the rest have no name here. */
export class KnownNames {
  readonly #known = new Set<string>();

  find(name: unknown): string | undefined {
    if (this.#known.has(name as string)) return name as string;
    const text = textOrNull(name, 200);
    if (text === null || this.#known.size >= MAX_NAMES) return undefined;
    this.#known.add(text);
    return text;
  }
}

/** The name that all of them have in common. */
export function commonStream(messages: readonly { readonly stream: string }[]): string | undefined {
  const first = messages[0]?.stream;
  for (const { stream } of messages) if (stream !== first) return undefined;
  return first;
}

/** Where an incoming message comes from. */
export function streamOf({ stream, source }: IncomingMessage): string | undefined {
  return stream ?? source;
}

export type Result = NonNullable<PublishOperation["results"]>[number];

/** False when nothing is known of it, and when it waits for another one. */
export function wasTried(result: Result): boolean {
  if (result === undefined || result.status === "held") return false;
  return result.status !== "unavailable" || result.error !== undefined;
}

/** Why a message did not go out; undefined when it did, or was not tried. */
export function failureOf(result: Result): unknown {
  return result === undefined || !("error" in result) ? undefined : result.error;
}

export function operationAttributes(
  name: string,
  type: "create" | "send" | "receive" | "process",
  system: string | undefined,
  destination: string | undefined,
): OtelAttributes {
  const attributes: OtelAttributes = {
    "messaging.system": system ?? OWN_SYSTEM,
    "messaging.operation.name": name,
    "messaging.operation.type": type,
  };
  if (destination !== undefined) attributes["messaging.destination.name"] = destination;
  return attributes;
}

/** Never its payload, and of its headers only the correlation. */
export function addMessage(attributes: OtelAttributes, { id, type, headers }: Message | IncomingMessage): void {
  addText(attributes, "messaging.message.id", id);
  addText(attributes, "messaging.message.conversation_id", headers.correlationId);
  addText(attributes, "txbox.message.type", type);
}

function addText(attributes: OtelAttributes, name: string, value: unknown): void {
  const text = textOrNull(value);
  if (text !== null) attributes[name] = text;
}

export function spanName(operation: string, destination: string | undefined): string {
  return destination === undefined ? operation : `${operation} ${destination}`;
}

export function markFailed(span: OtelSpan, error: unknown): void {
  if (!span.isRecording()) return;
  const message = hideSecrets(describeError(error));
  const type = errorType(error);
  const stack = stackOf(error);
  span.recordException({ name: type, message, ...(stack === undefined ? {} : { stack }) });
  span.setAttribute("error.type", type);
  span.setStatus({ code: ERROR, message });
}

/** A code such as `unavailable` or `23505`, else the name of the class. Never throws, whatever was thrown. */
export function errorType(error: unknown): string {
  try {
    return (
      textOrNull(errorCode(error), 100) ?? (error instanceof Error ? textOrNull(error.name, 100) : null) ?? "_OTHER"
    );
  } catch {
    return "_OTHER";
  }
}

const MAX_STACK = 8000;

function stackOf(error: unknown): string | undefined {
  try {
    return error instanceof Error && typeof error.stack === "string"
      ? hideSecrets(error.stack.slice(0, MAX_STACK))
      : undefined;
  } catch {
    return undefined;
  }
}
