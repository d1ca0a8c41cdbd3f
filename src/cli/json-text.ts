import type { Message } from "../core/message.ts";
import { printableJson } from "../core/printable.ts";

/** JSON with bigints as strings, and what a terminal would obey as \uXXXX; times are ISO 8601 already. */
export function jsonText(value: unknown, indent?: number): string {
  const plain = (_: string, item: unknown): unknown => (typeof item === "bigint" ? item.toString() : item);
  return printableJson(JSON.stringify(value, plain, indent));
}

type Body = Pick<Message, "body" | "headers">;

/** The body as JSON can show it: `payload` with numbers as they were written, or `bodyBase64`. */
export function readableBody({ body }: Body): { payload: unknown } | { bodyBase64: string } {
  if (typeof body !== "string") return { bodyBase64: Buffer.from(body).toString("base64") };
  return { payload: parseExactly(body) };
}

/** A message and what is known of it, ready for `jsonText`. */
export function messageRecord<M extends Body>(
  message: M,
): Omit<M, "body"> & ({ payload: unknown } | { bodyBase64: string }) {
  const { body: _, ...rest } = message;
  return { ...rest, ...readableBody(message) };
}

/** Fields of a store's message are getters, which spreading would miss. */
export function plainMessage(message: Message): Message {
  const { id, position, stream, type, key, aggregateType, aggregateId, headers, createdAt, body } = message;
  return { id, position, stream, type, key, aggregateType, aggregateId, headers, createdAt, body };
}

type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const { parse, rawJSON } = JSON as unknown as {
  readonly parse: (text: string, reviver: Reviver) => unknown;
  readonly rawJSON: (text: string) => unknown;
};

/** 12345678901234567890 must not come out as 12345678901234567000. */
function parseExactly(text: string): unknown {
  return parse(text, (_, value, { source }) =>
    typeof value === "number" && source !== undefined && String(value) !== source ? rawJSON(source) : value,
  );
}
