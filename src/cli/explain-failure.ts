import { errorCode } from "../core/errors.ts";
import { ConfigCallError, messageOf } from "./config-call.ts";
import { EXIT, type ExitCode } from "./exit-code.ts";
import { UsageError } from "./usage-error.ts";

export interface Explanation {
  readonly exitCode: ExitCode;
  /** For programs: a TxboxError's code, a driver's code, or "usage". */
  readonly code: string;
  readonly message: string;
  /** Where to read more. */
  readonly advice?: string;
}

const BY_TXBOX_CODE: Readonly<Partial<Record<string, ExitCode>>> = {
  invalid_option: EXIT.usage,
  schema_missing: EXIT.schema,
  schema_outdated: EXIT.schema,
  schema_too_new: EXIT.schema,
  unavailable: EXIT.unreachable,
  standby: EXIT.refused,
  restored_copy: EXIT.refused,
};

const CHECK_URL = "Check the URL (--database-url, TXBOX_DATABASE_URL, DATABASE_URL) and that the server runs";
const NETWORK: Readonly<Record<string, string>> = {
  ECONNREFUSED: "the connection was refused",
  ECONNRESET: "the connection was closed",
  ENOTFOUND: "there is no such host",
  EAI_AGAIN: "the host name could not be looked up",
  ETIMEDOUT: "it did not answer in time",
  EHOSTUNREACH: "there is no way to the host",
  ENETUNREACH: "there is no way to the network",
};
const STARTING_OR_FULL = new Set(["57P03", "53300", "57P01", "57P02"]);

/** One clear line and the exit code for anything thrown. */
export function explainFailure(error: unknown, where = "the database"): Explanation {
  if (error instanceof UsageError) {
    const usage = { exitCode: EXIT.usage, code: "usage", message: error.message };
    return error.command === undefined ? usage : { ...usage, advice: `See \`txbox ${error.command} --help\`` };
  }
  const code = errorCode(error);
  const text = messageOf(error);
  // A broker that cannot be reached, for example: nothing that is said below of databases is true of it.
  if (error instanceof ConfigCallError) return { exitCode: EXIT.failed, code: code ?? "failed", message: text };
  const known = code === undefined ? undefined : BY_TXBOX_CODE[code];
  if (code !== undefined && known !== undefined) return { exitCode: known, code, message: text };
  const unreachable = connectionTrouble(code, text, where);
  if (unreachable !== undefined)
    return { exitCode: EXIT.unreachable, code: code ?? "unreachable", message: unreachable };
  if (isWrongUrl(error))
    return { exitCode: EXIT.usage, code: "usage", message: `The URL of ${where} cannot be used: ${text}` };
  if (code === "25006")
    return {
      exitCode: EXIT.refused,
      code: "standby",
      message: `${where} is read-only: ${text}. Point txbox at the primary`,
    };
  if (code === "42501")
    return { exitCode: EXIT.failed, code, message: `${text}. \`txbox grants --help\` tells which rights a role needs` };
  return { exitCode: EXIT.failed, code: code ?? "failed", message: text };
}

/** The MongoDB driver looks at some parts of a URL, such as the files it names, only when it connects. */
function isWrongUrl(error: unknown): boolean {
  return (
    error instanceof Error &&
    (error.name === "MongoParseError" ||
      (errorCode(error) === "ENOENT" && "syscall" in error && error.syscall === "open"))
  );
}

function connectionTrouble(code: string | undefined, text: string, where: string): string | undefined {
  const network = code === undefined ? undefined : NETWORK[code];
  if (network !== undefined) return `Cannot reach ${where}: ${network}. ${CHECK_URL}`;
  if (code === "28P01" || code === "28000")
    return `${where} refused the login: ${text}. Check user and password in the URL`;
  if (code === "3D000") return `${where}: ${text}. Create it, or correct the URL`;
  if (code !== undefined && (STARTING_OR_FULL.has(code) || code.startsWith("08")))
    return `${where} takes no connection: ${text}`;
  if (/timeout expired|timeout exceeded when trying to connect|Connection terminated/i.test(text)) {
    return `Cannot reach ${where}: ${text}. ${CHECK_URL}`;
  }
  // Said by the MongoDB driver.
  if (/Server selection timed out|connect ECONNREFUSED|getaddrinfo/i.test(text))
    return `Cannot reach ${where}: ${text}. ${CHECK_URL}`;
  if (/^Authentication failed|requires authentication/i.test(text))
    return `${where} refused the login: ${text.replace(/\.$/, "")}. Check user, password and authSource in the URL`;
  // Said by node-postgres when the URL has no password and the server wants one.
  if (/client password must be a string/i.test(text))
    return `${where} wants a password. Put it into the URL, or set PGPASSWORD`;
  if (/does not support SSL connections|self-signed certificate/i.test(text))
    return `${where}: ${text}. Check sslmode in the URL`;
  return undefined;
}
