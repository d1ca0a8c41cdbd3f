import type { PublishResult } from "../../core/contracts.ts";
import { PermanentError, TxboxError, UnavailableError } from "../../core/errors.ts";
import type { JetStreamApi, JetStreamError } from "./jetstream-api.ts";

/** The message before this one is not the last of the stream. */
export const WRONG_LAST_MSG_ID = 10_070;
const STREAM_MISMATCH = 10_060;
const MESSAGE_TOO_LARGE = 10_054;
/** The stream or the server is full, or its disk fails: another time the message may fit. */
const FULL: ReadonlySet<number | undefined> = new Set([10_002, 10_023, 10_028, 10_047, 10_077]);

/** What JetStream's refusal says of a message. */
export function refusedPublish(subject: string, error: JetStreamError): PublishResult {
  const { err_code: reason, code, description } = error;
  const text = `JetStream refused a message to "${subject}": ${description} (${reason ?? code})`;
  if (reason === STREAM_MISMATCH) {
    const fix = "Name in streamName the stream that has this subject, or give the stream this subject";
    return { status: "rejected", error: new PermanentError(text, { field: "streamName", fix }) };
  }
  if (reason === MESSAGE_TOO_LARGE) {
    const fix = "Raise max_msg_size of the stream, or send a reference to the data";
    return { status: "rejected", error: new TxboxError("payload_too_large", text, { fix }) };
  }
  if (code === 503 || FULL.has(reason)) return { status: "unavailable", error: new UnavailableError(text) };
  return { status: "failed", error: new Error(text) };
}

/** Nobody took the message: there is no stream for it, or there is one that has no leader now. */
export async function whyNobody(api: JetStreamApi, subject: string, declares: boolean): Promise<PublishResult> {
  try {
    const [stream] = await api.streamsOf(subject);
    if (stream !== undefined) {
      const error = new UnavailableError(`The JetStream stream "${stream}" of "${subject}" is not ready`);
      return { status: "unavailable", error };
    }
  } catch (error) {
    return { status: "unavailable", error };
  }
  // It was there when it was declared; the next try declares it anew.
  if (declares) return { status: "unavailable", error: new UnavailableError(`The stream of "${subject}" is gone`) };
  const error = new PermanentError(`No JetStream stream keeps the subject "${subject}"`, {
    field: "declare",
    fix: "Create one with this subject, or let createNatsPublisher do it with declare: true",
  });
  return { status: "rejected", error };
}
