import type { Message } from "../../core/message.ts";
import { PermanentError, TxboxError } from "../../core/errors.ts";
import { encodeEnvelope, encodeText, type EnvelopeFormat, type Fields } from "../../adapter/index.ts";
import type { NatsConnection } from "./nats-client.ts";
import { EXPECTED_LAST_MSG_ID, EXPECTED_STREAM, MSG_ID, NATS_TRANSPORT, EncodedHeaders } from "./nats-headers.ts";
import { isSubject } from "./nats-subject.ts";

/** A message ready to be sent. */
export interface EncodedMessage {
  readonly subject: string;
  readonly id: string;
  readonly fields: Fields;
  readonly body: Uint8Array;
}

export interface EncodeOptions {
  readonly connection: NatsConnection;
  readonly subject: (message: Message) => string;
  readonly streamName: ((message: Message) => string) | undefined;
  readonly envelope: EnvelopeFormat;
  readonly source: string | undefined;
}

/** Throws what makes the message impossible to send. */
export function encodeMessage(message: Message, options: EncodeOptions): EncodedMessage {
  const subject = options.subject(message);
  if (!isSubject(subject)) {
    throw new PermanentError(
      `A message of type "${message.type}" cannot go to the subject ${JSON.stringify(subject)}`,
      {
        field: "subject",
        fix: "Let subject() give words parted by dots, without wildcards and white space",
      },
    );
  }
  const id = encodeText(message.id, NATS_TRANSPORT);
  const fields: Fields = { [MSG_ID]: id };
  if (options.streamName !== undefined) fields[EXPECTED_STREAM] = options.streamName(message);
  Object.assign(fields, encodeEnvelope(message, options.envelope, NATS_TRANSPORT, options.source));
  const { body } = message;
  return { subject, id, fields, body: typeof body === "string" ? Buffer.from(body) : body };
}

/** With `after`, the server takes the message only right behind the one of that id. */
export function encodedHeaders({ fields }: EncodedMessage, after: string | undefined): EncodedHeaders {
  return new EncodedHeaders(after === undefined ? fields : { ...fields, [EXPECTED_LAST_MSG_ID]: after });
}

/** Why a message of this size cannot be sent: a server ends the connection of a client that sends more than it takes. */
export function misfit(bytes: number, connection: NatsConnection): TxboxError | undefined {
  const limit = connection.info?.max_payload;
  if (limit === undefined || bytes <= limit) return undefined;
  return new TxboxError(
    "payload_too_large",
    `The message has ${bytes} bytes with its headers, and NATS takes ${limit}`,
    {
      fix: "Raise max_payload of nats-server, or send a reference to the data",
    },
  );
}
