import type { FailureOrigin, StoreFailure } from "../../core/contracts.ts";
import { errorCode, TxboxError } from "../../core/errors.ts";

// EPIPE is none.
const SQLSTATE = /^(?=.*\d)[0-9A-Z]{5}$/;
const CONFLICT: ReadonlySet<string> = new Set(["40001", "40P01"]);
// The connection, the server's shutdown and start, its resources: not what the statement says.
export const PASSING: RegExp = /^(?:08|53|57P|58|40)/;
/** The server has become a standby. */
const READ_ONLY = "25006";
// No handler can bring these about: the connection, the shutdown, a full disk, too many connections.
const SURELY_OUTAGE = /^(?:08...|57P0.|53[13]00)$/;
// A wrong password or role, a database that does not exist, a right that is missing.
const CONFIGURATION = /^(?:28...|3D000|42501)$/;

// Of Node's sockets and of postgres.js.
const CONNECTION_CODE =
  /^(?:CONNECTION_(?:CLOSED|ENDED|DESTROYED)|CONNECT_TIMEOUT|ECONN.*|EPIPE|ETIMEDOUT|EHOST.*|ENET.*|ENOTFOUND|EAI_AGAIN|ENOENT)$/;
const CONFIGURATION_CODE = /^(?:SASL_SIGNATURE_MISMATCH|AUTH_TYPE_NOT_IMPLEMENTED)$/;
// node-postgres, its pool and PGlite give no code for these.
const CONNECTION_MESSAGE =
  /^(?:Connection terminated|Client (?:was closed|has encountered a connection error)|Query read timeout|timeout exceeded when trying to connect|timeout expired|Cannot use a pool after calling end|PGlite is clos)/;
const CONFIGURATION_MESSAGE = /^SASL: /;

/** What an error means for the database, also where a library wraps the driver's. */
export function classify(error: unknown, origin?: FailureOrigin): StoreFailure | undefined {
  const code = sqlState(error);
  if (code === undefined) return classifyConnection(error, origin);
  if (CONFLICT.has(code)) return "conflict";
  if (CONFIGURATION.test(code)) return "configuration";
  const isOutage = origin === "handler" ? SURELY_OUTAGE.test(code) : PASSING.test(code) || code === READ_ONLY;
  return isOutage ? "unavailable" : "statement";
}

/** An error of a handler may be about another server that it called, or the handler may have ended its own session. */
function classifyConnection(error: unknown, origin: FailureOrigin | undefined): StoreFailure | undefined {
  if (origin === "handler") return undefined;
  for (const one of causesOf(error)) {
    const code = errorCode(one) ?? "";
    if (CONNECTION_CODE.test(code) || CONNECTION_MESSAGE.test(one.message)) return "unavailable";
    if (CONFIGURATION_CODE.test(code) || CONFIGURATION_MESSAGE.test(one.message)) return "configuration";
  }
  return undefined;
}

export function isSerializationFailure(error: unknown): boolean {
  return classify(error) === "conflict";
}

/** The connection is gone or about to be. */
export function isConnectionLoss(error: unknown): boolean {
  const code = sqlState(error);
  return code === undefined ? classify(error) === "unavailable" : /^(?:08...|57P0.)$/.test(code);
}

/** The code that the server gave, in a chain of causes. */
export function sqlState(error: unknown): string | undefined {
  return causesOf(error)
    .map(errorCode)
    .find((code) => code !== undefined && SQLSTATE.test(code));
}

const MAX_CAUSES = 10;

function causesOf(error: unknown): Error[] {
  const chain: Error[] = [];
  let one = error;
  while (chain.length < MAX_CAUSES && one instanceof Error && !(one instanceof TxboxError)) {
    chain.push(one);
    one = one.cause;
  }
  return chain;
}
