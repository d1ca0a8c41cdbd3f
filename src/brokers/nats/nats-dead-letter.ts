import type { Fields } from "../../adapter/index.ts";
import { PermanentError, UnavailableError } from "../../core/errors.ts";
import { deadHeaders } from "../../core/dead-letter.ts";
import { publishAnswer } from "./jetstream-api.ts";
import type { NatsConnection, NatsMessage } from "./nats-client.ts";
import type { HeldMessage } from "./nats-delivery.ts";
import { MSG_ID, NATS_TRANSPORT, EncodedHeaders } from "./nats-headers.ts";

const TIMEOUT_MS = 5000;

export interface DeadLetterOffice {
  readonly connection: NatsConnection;
  readonly subject: string;
  readonly stream: string;
  readonly consumer: string;
}

/** Publishes a message as a dead letter: bytes and headers as they came, and why it died. Resolves once a stream has it. */
export async function publishDeadLetter(
  { connection, subject, stream, consumer }: DeadLetterOffice,
  held: HeldMessage,
  error: unknown,
  attempts: number,
): Promise<void> {
  const { body } = held.raw;
  const original = originalHeaders(held.raw.headers);
  const fields: Fields = { [MSG_ID]: `${stream}.${consumer}.${held.sequence}.${held.stamp}` };
  const reasons: Fields = { ...readable(deadHeaders(consumer, error, attempts)), "dead-subject": held.raw.subject };
  let headers = new EncodedHeaders({ ...fields, ...reasons }, original);
  // A message as large as the server takes leaves no room for reasons; it is kept without them.
  if (headers.size + body.length > (connection.info?.max_payload ?? Infinity))
    headers = new EncodedHeaders({}, original);
  const answer = await send(connection, subject, body, headers);
  const said = publishAnswer(answer);
  if (said === undefined || "error" in said) {
    const why = said === undefined ? "who answered is no stream" : said.error.description;
    throw new UnavailableError(`The dead letter was refused by "${subject}": ${why}`, { field: "deadLetter" });
  }
}

async function send(
  connection: NatsConnection,
  subject: string,
  body: Uint8Array,
  headers: EncodedHeaders,
): Promise<NatsMessage> {
  try {
    const answer = connection.request(subject, body, { headers, timeout: TIMEOUT_MS });
    answer.catch(() => undefined);
    headers.requireSent();
    return await answer;
  } catch (cause) {
    throw new UnavailableError(`No dead letter could be sent to "${subject}": ${(cause as Error).message}`, {
      field: "deadLetter",
      fix: noDeadLetterStream(subject).fix ?? "",
      cause,
    });
  }
}

export function noDeadLetterStream(subject: string): PermanentError {
  return new PermanentError(`No JetStream stream keeps the dead letters of "${subject}"`, {
    field: "deadLetter",
    fix: `Create a stream with the subject "${subject}", or set declare: true, or name another subject in deadLetter`,
  });
}

/** Without the headers that JetStream would obey once more. */
function originalHeaders(headers: ReadonlyMap<string, string[]>): Record<string, readonly string[]> {
  return Object.fromEntries([...headers].filter(([name]) => NATS_TRANSPORT.reserved?.test(name) !== true));
}

/** Plain text stays as it is; what a header cannot hold is percent-encoded. */
function readable(fields: Fields): Fields {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      value.toWellFormed().replaceAll(/[^\x20-\x24\x26-\x7e]/gu, (char) => encodeURIComponent(char)),
    ]),
  );
}
