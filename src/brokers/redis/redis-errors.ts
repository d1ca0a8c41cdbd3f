import { TxboxError, UnavailableError } from "../../core/errors.ts";

const CREDENTIALS = /^-?(?:NOAUTH|WRONGPASS|NOPERM|DENIED)\b/;
/** Replies of a node of a cluster to a client that knows nothing of it. */
const CLUSTER = /^-?(?:MOVED|ASK|CROSSSLOT|CLUSTERDOWN|TRYAGAIN)\b/;
/** A new connection may lead to a server that can do it. */
const OTHER_SERVER = /^-?(?:READONLY|NOREPLICAS|MASTERDOWN|MOVED|ASK|CLUSTERDOWN|UNBLOCKED)\b/;
const REPLY = /^-?[A-Z]{2,}\b/;

/** A stream that takes nothing more, whatever the message: its last id is the greatest there is. */
export function isExhausted(text: string): boolean {
  return text.startsWith("ERR The stream has exhausted");
}

/** The only refusal of XADD that is about the message. */
export function isTooLargeForStream(text: string): boolean {
  return text.startsWith("ERR Elements are too large");
}

export function needsOtherServer(text: string): boolean {
  return OTHER_SERVER.test(text);
}

/** An answer of the server, not a lost connection; with this code, if one is asked for. */
export function isReply(error: unknown, code = ""): error is Error {
  return error instanceof Error && REPLY.test(error.message) && error.message.startsWith(code);
}

/** A value is larger than the server allows: it has answered so and closed the connection. */
export function isTooLargeForServer(error: unknown): error is Error {
  return error instanceof Error && error.message.includes("Protocol error: invalid bulk length");
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
  if (CLUSTER.test(text)) {
    return new UnavailableError(`This Redis is a node of a cluster, which is not supported: ${text}`, {
      field: "client",
      fix: "Pass a client of a Redis without cluster mode, such as one server or a master with replicas and Sentinel",
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
