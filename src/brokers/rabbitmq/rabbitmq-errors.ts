import { describeError, PermanentError, TxboxError, UnavailableError } from "../../core/errors.ts";
import { exchangeName } from "./rabbitmq-route.ts";

/** AMQP reply codes with which a server closes a channel. */
const ACCESS_REFUSED = 403;
const NOT_FOUND = 404;
const PRECONDITION_FAILED = 406;

export function replyCode(error: unknown): number | undefined {
  const code: unknown = typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
  return typeof code === "number" ? code : undefined;
}

/** The connection failed for a reason that time does not mend: an operator must change a setting. */
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

/** It is asked for by name and not there: what to do depends on which side could have created it. */
export function missingExchange(exchange: string, fix: string, cause?: unknown): PermanentError {
  return new PermanentError(`RabbitMQ has no exchange "${exchange}"`, { field: "exchange", fix, cause });
}

export function missingQueue(queue: string, field: "queue" | "deadLetter", cause: unknown): TxboxError {
  const what = field === "queue" ? "" : " for dead letters";
  return new TxboxError("not_found", `RabbitMQ has no queue "${queue}"${what}`, {
    field,
    fix: "Create it, or set declare: true on the subscriber",
    cause,
  });
}

/** What was declared a moment ago is gone again: the next attempt declares it anew. */
export function deletedMeanwhile(what: string, cause: unknown): UnavailableError {
  return new UnavailableError(`RabbitMQ no longer has ${what}: it was deleted`, { cause });
}

export function isMissing(error: unknown): boolean {
  return replyCode(error) === NOT_FOUND && !isAway(error);
}

/** There is a record of the queue, but the node with its messages is down, or its process has ended. */
function isAway(error: unknown): boolean {
  return replyCode(error) === NOT_FOUND && !/NOT_FOUND - no (queue|exchange) /.test(describeError(error));
}

/** What a closed channel says of the only message that was under way on it. */
export function refusalOf(error: unknown, exchange: string): Error {
  switch (replyCode(error)) {
    case NOT_FOUND:
      // It was there when it was looked for.
      return exchangeOut(exchange, `The exchange "${exchange}" was deleted`, error);
    case ACCESS_REFUSED:
      return exchangeOut(exchange, `The exchange "${exchange}" takes nothing: ${describeError(error)}`, error);
    case PRECONDITION_FAILED:
      return new PermanentError(`RabbitMQ does not take this message: ${describeError(error)}`, { cause: error });
    default:
      return new Error(`RabbitMQ refused this message: ${describeError(error)}`, { cause: error });
  }
}

/** All messages to the exchange have to wait; none of them is at fault. */
export function exchangeOut(exchange: string, message: string, cause: unknown): UnavailableError {
  return new UnavailableError(message, { route: exchangeName(exchange), cause });
}

/** What came of creating or looking for something. */
export function topologyError(error: unknown, what: string, notFound: () => Error): Error {
  if (replyCode(error) === undefined) return notAsked(error instanceof Error ? error : new Error(String(error)));
  switch (replyCode(error)) {
    case NOT_FOUND:
      return isAway(error)
        ? new UnavailableError(`${what} is out: ${describeError(error)}`, { cause: error })
        : notFound();
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
