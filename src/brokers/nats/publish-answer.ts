import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, TxboxError, UnavailableError } from "../../core/errors.ts";
import type { JetStreamApi, JetStreamError } from "./jetstream-api.ts";

/** The message before this one is not the last of the stream. */
export const WRONG_LAST_MSG_ID = 10_070;
const STREAM_MISMATCH = 10_060;
const TOO_LARGE: ReadonlySet<number | undefined> = new Set([10_054, 10_097]);
/** The stream takes nothing now: it is full, its disk fails, or it is sealed. */
const STREAM_OUT: ReadonlySet<number | undefined> = new Set([10_077, 10_109]);
/** The server or the account has no room left. */
const SERVER_OUT: ReadonlySet<number | undefined> = new Set([10_002, 10_023, 10_028, 10_047]);

/** What JetStream's refusal says of a message; `stream` is the JetStream stream, as far as it is known. */
export function refusedPublish(subject: string, stream: string, error: JetStreamError): PublishResult {
  const { err_code: reason, code, description } = error;
  const text = `JetStream refused a message to "${subject}": ${description} (${reason ?? code})`;
  if (reason === STREAM_MISMATCH) {
    const fix = "Name in streamName the stream that has this subject, or give the stream this subject";
    return { status: "rejected", error: new PermanentError(text, { field: "streamName", fix }) };
  }
  if (TOO_LARGE.has(reason)) {
    const fix = "Raise max_msg_size of the stream, or send a reference to the data";
    return { status: "rejected", error: new TxboxError("payload_too_large", text, { fix }) };
  }
  if (STREAM_OUT.has(reason)) return routeOut(stream || subject, text);
  if (code === 503 || SERVER_OUT.has(reason)) return { status: "unavailable", error: new UnavailableError(text) };
  return { status: "failed", error: new Error(text) };
}

/** Only this stream or subject takes nothing; others may. */
export function routeOut(route: string, why: string | TxboxError): PublishResult {
  const error = typeof why === "string" ? new UnavailableError(why, { route }) : why;
  return { status: "unavailable", route, error };
}

/**
 * No stream took the message: there is none for it, or it has no leader now. `before`: a stream has kept this subject
 * already, or was declared, so that it is out and not missing.
 */
export async function whyNobody(api: JetStreamApi, subject: string, before: boolean): Promise<PublishResult> {
  try {
    const [stream] = await api.streamsOf(subject);
    if (stream !== undefined) return routeOut(stream, `The JetStream stream "${stream}" of "${subject}" is not ready`);
  } catch (error) {
    return { status: "unavailable", error };
  }
  if (before) return routeOut(subject, `The JetStream stream of "${subject}" is gone`);
  const error = new PermanentError(`No JetStream stream keeps the subject "${subject}"`, {
    field: "declare",
    fix: "Create one with this subject, or let createNatsPublisher do it with declare: true",
  });
  return { status: "rejected", error };
}
