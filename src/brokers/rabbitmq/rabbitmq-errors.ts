import { describeError, PermanentError, TxboxError, UnavailableError } from "../../core/errors.ts";

/** AMQP reply codes with which a server closes a channel. */
const ACCESS_REFUSED = 403;
const NOT_FOUND = 404;
const PRECONDITION_FAILED = 406;

export function replyCode(error: unknown): number | undefined {
  const code: unknown = typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
  return typeof code === "number" ? code : undefined;
}

/** The connection failed for a reason that time does not mend: someone must change a setting. */
export function refusedConnection(error: unknown): TxboxError | undefined {
  const text = describeError(error);
  if (/ACCESS[_-]REFUSED/.test(text)) {
    return new TxboxError("invalid_option", "RabbitMQ refuses this user name or password", {
      field: "connection",
      fix: "Correct them in the URL that connect() is given",
      cause: error,
    });
  }
  if (/NOT[_-]ALLOWED/.test(text)) {
    return new TxboxError("invalid_option", `RabbitMQ refuses this virtual host to the user: ${text}`, {
      field: "connection",
      fix: "Name a virtual host that exists, and allow the user to use it",
      cause: error,
    });
  }
  return undefined;
}

export function unavailable(error: unknown): UnavailableError {
  const cause = error ?? new Error("the connection is closed");
  return new UnavailableError(`RabbitMQ is out: ${describeError(cause)}`, { cause });
}

/** For an error that is not the server's: amqplib could not encode the question, or the connection is gone. */
export function notAsked(error: Error): TxboxError {
  if (error instanceof TxboxError) return error;
  if (!(error instanceof TypeError)) return unavailable(error);
  return new TxboxError("invalid_option", error.message, { fix: "Correct the name or argument", cause: error });
}

export function missingExchange(exchange: string, cause?: unknown): PermanentError {
  return new PermanentError(`RabbitMQ has no exchange "${exchange}"`, {
    field: "exchange",
    fix: "Create it, or set declare: true on the publisher",
    cause,
  });
}

export function missingQueue(queue: string, field: "queue" | "deadLetter", cause: unknown): TxboxError {
  const what = field === "queue" ? "" : " for dead letters";
  return new TxboxError("not_found", `RabbitMQ has no queue "${queue}"${what}`, {
    field,
    fix: "Create it, or set declare: true on the subscriber",
    cause,
  });
}

export function unroutable(exchange: string, routingKey: string): PermanentError {
  return new PermanentError(`No queue takes messages of exchange "${exchange}" with the routing key "${routingKey}"`, {
    field: "routingKey",
    fix: "Bind a queue to it, then requeue the dead letter",
  });
}

/** What a closed channel says of the only message that was under way on it. */
export function refusalOf(error: unknown, exchange: string): Error {
  switch (replyCode(error)) {
    case NOT_FOUND:
      return missingExchange(exchange, error);
    case PRECONDITION_FAILED:
      return new PermanentError(`RabbitMQ does not take this message: ${describeError(error)}`, { cause: error });
    default:
      return new Error(`RabbitMQ refused this message: ${describeError(error)}`, { cause: error });
  }
}

/** What came of creating or looking for something. */
export function topologyError(error: unknown, what: string, notFound: () => Error): Error {
  if (replyCode(error) === undefined) return notAsked(error instanceof Error ? error : new Error(String(error)));
  switch (replyCode(error)) {
    case NOT_FOUND:
      return notFound();
    case PRECONDITION_FAILED:
      return new TxboxError("invalid_option", `${what} exists with other settings: ${describeError(error)}`, {
        field: "declare",
        fix: "Delete it, or leave declare out and keep it as it is",
        cause: error,
      });
    case ACCESS_REFUSED:
      return new TxboxError("invalid_option", `The user may not use ${what}: ${describeError(error)}`, {
        field: "connection",
        fix: "Give the user the permission, or connect as another",
        cause: error,
      });
    default:
      return unavailable(error);
  }
}
