import { answerWithin, describeError } from "../../../../src/adapter/index.ts";
import { PermanentError, UnavailableError } from "../../../../src/index.ts";

/** The methods of `SQS` of @aws-sdk/client-sqs that are called. */
export interface SqsClient {
  sendMessageBatch(input: SqsRequest): Promise<SqsAnswer>;
  changeMessageVisibilityBatch(input: SqsRequest): Promise<SqsAnswer>;
  deleteMessageBatch(input: SqsRequest): Promise<SqsAnswer>;
  receiveMessage(input: SqsRequest, options: { abortSignal?: AbortSignal | undefined }): Promise<SqsReceived>;
}

/** Of a request this is enough to know; what it holds is in the documentation of the service. */
export type SqsRequest = { QueueUrl: string | undefined };
/** Any field of an answer may be missing. */
type Answer<T> = { [Name in keyof T]?: T[Name] | undefined };
/** Some entries of a batch may be taken and others refused. */
export type SqsAnswer = Answer<{ Failed: SqsFailure[] }>;
export type SqsFailure = Answer<{ Id: string; SenderFault: boolean; Code: string; Message: string }>;
export type SqsReceived = Answer<{ Messages: SqsMessage[] }>;
export type SqsAttribute = Answer<{ DataType: string; StringValue: string; BinaryValue: Uint8Array }>;
export type SqsMessage = Answer<{
  MessageId: string;
  ReceiptHandle: string;
  Body: string;
  Attributes: Answer<{ MessageGroupId: string }>;
  MessageAttributes: Record<string, SqsAttribute>;
}>;

export interface SqsContent {
  MessageBody: string;
  MessageAttributes: Record<string, SqsAttribute>;
  MessageGroupId: string;
  MessageDeduplicationId: string;
}

/** What SQS takes in one request. */
export const MAX_ENTRIES = 10;
export const MAX_BYTES = 256 * 1024;

/** For each entry why it was refused: a PermanentError when that will not change. Undefined: it was taken. */
export async function refusals(
  { client, timeoutMs }: { client: SqsClient; timeoutMs: number },
  call: "sendMessageBatch" | "changeMessageVisibilityBatch" | "deleteMessageBatch",
  QueueUrl: string,
  entries: readonly object[],
  signal?: AbortSignal,
): Promise<(Error | undefined)[]> {
  const request = { QueueUrl, Entries: entries.map((entry, place) => ({ ...entry, Id: String(place) })) };
  const { Failed = [] } = await answerOf(QueueUrl, client[call](request), timeoutMs, signal);
  return request.Entries.map(({ Id }) => {
    const failure = Failed.find((one) => one.Id === Id);
    if (failure === undefined) return undefined;
    const text = `SQS refused an entry of ${call} for ${QueueUrl}: ${failure.Code} (${failure.Message})`;
    return failure.SenderFault === true ? new PermanentError(text) : new Error(text);
  });
}

/** Throws a PermanentError when there is no such queue, and otherwise an UnavailableError. */
export function answerOf<T>(url: string, asking: Promise<T>, timeoutMs: number, signal?: AbortSignal): Promise<T> {
  const explained = asking.catch((cause: unknown) => {
    const { name, $fault } = cause as { name?: unknown; $fault?: unknown };
    if (name === "QueueDoesNotExist") throw new PermanentError(`SQS has no queue ${url}`, { cause });
    // What SQS refuses for rights, keys or quotas is about this queue: others may work.
    const route = $fault === "client" ? { route: url } : {};
    throw new UnavailableError(`SQS is out: ${describeError(cause)}`, { cause, ...route });
  });
  return answerWithin(explained, timeoutMs, `SQS gave no answer for ${timeoutMs} ms`, signal);
}
