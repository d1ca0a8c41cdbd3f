import { TxboxError, UnavailableError } from "../../core/errors.ts";

/** Replies that say something about the server, its state or our rights, and nothing about a message. */
const NOT_THE_MESSAGE =
  /^-?(?:OOM|READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|BUSY|TRYAGAIN|CLUSTERDOWN|MOVED|ASK|CROSSSLOT|NOAUTH|WRONGPASS|NOPERM|DENIED|NOSCRIPT|UNBLOCKED|ERR max number of clients|ERR unknown command|ERR Error (?:running|compiling))\b/;
const CREDENTIALS = /^-?(?:NOAUTH|WRONGPASS|NOPERM|DENIED)\b/;
/** A new connection may lead to a server that can do it. */
const OTHER_SERVER = /^-?(?:READONLY|MASTERDOWN|MOVED|ASK|CLUSTERDOWN|UNBLOCKED)\b/;
const REPLY = /^-?[A-Z]{2,}\b/;

export function isNotTheMessage(text: string): boolean {
  return NOT_THE_MESSAGE.test(text);
}

export function needsOtherServer(text: string): boolean {
  return OTHER_SERVER.test(text);
}

/** An answer of the server, not a lost connection; with this code, if one is asked for. */
export function isReply(error: unknown, code = ""): error is Error {
  return error instanceof Error && REPLY.test(error.message) && error.message.startsWith(code);
}

/** A value is larger than the server allows: it has answered so and closed the connection. */
export function isProtocolError(error: Error): boolean {
  return error.message.includes("Protocol error");
}

/** What went wrong with a command or a connection, as an outage that says what to do. */
export function explainRedis(error: unknown): TxboxError {
  if (error instanceof TxboxError) return error;
  const text = error instanceof Error ? error.message : String(error);
  if (CREDENTIALS.test(text)) {
    return new UnavailableError(`Redis refuses this client: ${text}`, {
      field: "client",
      fix: "Check its username, its password and its ACL rules",
      cause: error,
    });
  }
  if (/^-?OOM\b/.test(text)) {
    return new UnavailableError(`Redis is full: ${text}`, {
      fix: "Raise maxmemory, or trim the stream with the publisher's option trim",
      cause: error,
    });
  }
  return new UnavailableError(`Redis is not available: ${text}`, { cause: error });
}
