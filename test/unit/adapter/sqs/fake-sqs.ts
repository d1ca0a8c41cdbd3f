import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { MAX_BYTES, MAX_ENTRIES } from "./sqs-client.ts";
import type { SqsAnswer, SqsClient, SqsContent, SqsFailure, SqsMessage, SqsReceived } from "./sqs-client.ts";
import { sizeOfContent } from "./sqs-envelope.ts";

/**
 * The FIFO queues of Amazon SQS in memory, as its documentation describes them: message groups that are blocked while one
 * of their messages is in flight, visibility timeouts, receipts that end with them, repeats that are recognised for five
 * minutes, requests that are taken in part, and what is refused. Answers take a moment, and can get lost on the way.
 */
export class FakeSqs implements SqsClient {
  readonly #queues = new Map<string, Queue>();
  /** Messages whose attributes hold this text are refused: once by the service's fault, or always by the sender's. */
  readonly refused = new Map<string, "failed" | "rejected">();
  /** Queues that this client has no right to. */
  readonly denied = new Set<string>();
  /** How often each method was called. */
  readonly calls = new Map<string, number>();
  isDown = false;
  hanging: Promise<void> | undefined;

  create(url: string): void {
    this.#queues.set(url, { stored: [], sentIds: new Map(), attempts: new Map() });
  }

  /** What is in the queue, in flight or not. */
  all(url: string): readonly Stored[] {
    return this.#queues.get(url)?.stored ?? [];
  }

  async sendMessageBatch(request: Batch<SqsContent & { Id: string }>): Promise<SqsAnswer> {
    const queue = await this.#open("sendMessageBatch", request);
    const entries = batchEntries(request);
    const size = entries.reduce((sum, entry) => sum + sizeOfContent(entry), 0);
    if (size > MAX_BYTES) throw refusal("BatchRequestTooLong", `${size} bytes`);
    return this.#answer(entries, (entry) => {
      const why = misfit(entry);
      if (why !== undefined) return { SenderFault: true, Code: "InvalidParameterValue", Message: why };
      const refused = [...this.refused].find(([text]) => JSON.stringify(entry.MessageAttributes).includes(text));
      if (refused?.[1] === "failed") this.refused.delete(refused[0]);
      if (refused !== undefined) return { SenderFault: refused[1] === "rejected", Code: "InternalFailure" };
      this.#store(queue, entry);
      return undefined;
    });
  }

  async receiveMessage(request: Receive, { abortSignal }: { abortSignal?: AbortSignal | undefined } = {}) {
    const queue = await this.#open("receiveMessage", request);
    const { MaxNumberOfMessages: most = 1, WaitTimeSeconds: waitSeconds = 0 } = request;
    if (most < 1 || most > MAX_ENTRIES) throw refusal("InvalidParameterValue", `MaxNumberOfMessages ${most}`);
    if (waitSeconds < 0 || waitSeconds > 20) throw refusal("InvalidParameterValue", `WaitTimeSeconds ${waitSeconds}`);
    const until = performance.now() + waitSeconds * 1000;
    let given = this.#give(queue, request);
    while (given.length === 0 && performance.now() < until) {
      // Who hangs up while the service waits gets nothing; afterwards it is too late for the service to know.
      if (abortSignal?.aborted === true) throw new DOMException("Request aborted", "AbortError");
      await sleep(2);
      this.#requireUp();
      given = this.#give(queue, request);
    }
    await sleep(2);
    if (abortSignal?.aborted === true) throw new DOMException("Request aborted", "AbortError");
    this.#requireUp();
    return { Messages: given.map((one) => asReceived(one, request)) } satisfies SqsReceived;
  }

  async changeMessageVisibilityBatch(request: Batch<Receipt & { VisibilityTimeout: number }>): Promise<SqsAnswer> {
    const queue = await this.#open("changeMessageVisibilityBatch", request);
    return this.#answer(batchEntries(request), ({ ReceiptHandle, VisibilityTimeout: seconds }) => {
      if (!(seconds >= 0 && seconds <= 43_200)) return { SenderFault: true, Code: "InvalidParameterValue" };
      const one = queue.stored.find((stored) => stored.receipt === ReceiptHandle);
      if (one === undefined || one.visibleAt <= performance.now()) return EXPIRED;
      one.visibleAt = performance.now() + seconds * 1000;
      one.isChanged = true;
      return undefined;
    });
  }

  async deleteMessageBatch(request: Batch<Receipt>): Promise<SqsAnswer> {
    const queue = await this.#open("deleteMessageBatch", request);
    return this.#answer(batchEntries(request), ({ ReceiptHandle }) => {
      const at = queue.stored.findIndex((stored) => stored.receipts.has(ReceiptHandle));
      const one = queue.stored[at];
      // What was deleted before is not missed.
      if (one === undefined) return undefined;
      if (one.receipt !== ReceiptHandle || one.visibleAt <= performance.now()) return EXPIRED;
      queue.stored.splice(at, 1);
      return undefined;
    });
  }

  #store({ stored, sentIds }: Queue, content: SqsContent): void {
    const now = performance.now();
    if (now - (sentIds.get(content.MessageDeduplicationId) ?? -Infinity) < FIVE_MINUTES) return;
    sentIds.set(content.MessageDeduplicationId, now);
    const unseen = { id: randomUUID(), receipt: "", receipts: new Set<string>(), receiveCount: 0, visibleAt: 0 };
    stored.push({ ...content, ...unseen, isChanged: false });
  }

  /** From the front of every group that has nothing in flight. */
  #give({ stored, attempts }: Queue, request: Receive): Stored[] {
    const now = performance.now();
    const visibleAt = now + (request.VisibilityTimeout ?? 30) * 1000;
    const before = attempts.get(request.ReceiveRequestAttemptId);
    if (before !== undefined && before.every((one) => stored.includes(one) && !one.isChanged && one.visibleAt > now)) {
      for (const one of before) one.visibleAt = visibleAt;
      return before;
    }
    const blocked = new Set(stored.filter((one) => one.visibleAt > now).map((one) => one.MessageGroupId));
    const given = stored.filter((one) => !blocked.has(one.MessageGroupId)).slice(0, request.MaxNumberOfMessages ?? 1);
    for (const one of given) {
      one.receipt = randomUUID();
      one.receipts.add(one.receipt);
      one.receiveCount++;
      one.visibleAt = visibleAt;
      one.isChanged = false;
    }
    if (given.length > 0) attempts.set(request.ReceiveRequestAttemptId, given);
    return given;
  }

  async #open(method: string, { QueueUrl }: { QueueUrl: string }): Promise<Queue> {
    this.calls.set(method, (this.calls.get(method) ?? 0) + 1);
    await sleep(1);
    await this.hanging;
    this.#requireUp();
    if (this.denied.has(QueueUrl)) throw refusal("AccessDeniedException", "Access to the resource is denied.");
    const queue = this.#queues.get(QueueUrl);
    if (queue === undefined) throw refusal("QueueDoesNotExist", "The specified queue does not exist.");
    return queue;
  }

  async #answer<E extends { Id: string }>(
    entries: readonly E[],
    take: (entry: E) => Omit<SqsFailure, "Id"> | undefined,
  ): Promise<SqsAnswer> {
    const Failed = entries.flatMap((entry) => {
      const failure = take(entry);
      return failure === undefined ? [] : [{ ...failure, Id: entry.Id }];
    });
    await sleep(1);
    // It was done, and the answer is lost.
    this.#requireUp();
    return Failed.length === 0 ? {} : { Failed };
  }

  #requireUp(): void {
    if (this.isDown) throw Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  }
}

export interface Stored extends SqsContent {
  readonly id: string;
  /** The last one, and all that there were. */
  receipt: string;
  readonly receipts: Set<string>;
  receiveCount: number;
  visibleAt: number;
  /** Its visibility was changed since it was received. */
  isChanged: boolean;
}

interface Queue {
  readonly stored: Stored[];
  readonly sentIds: Map<string, number>;
  readonly attempts: Map<string, Stored[]>;
}

interface Batch<Entry> {
  QueueUrl: string;
  Entries: (Entry & { Id: string })[];
}

interface Receipt {
  ReceiptHandle: string;
}

interface Receive {
  QueueUrl: string;
  MaxNumberOfMessages?: number;
  VisibilityTimeout?: number;
  WaitTimeSeconds?: number;
  ReceiveRequestAttemptId: string;
  MessageAttributeNames?: string[];
  MessageSystemAttributeNames?: string[];
}

const FIVE_MINUTES = 5 * 60 * 1000;
const EXPIRED = { SenderFault: true, Code: "InvalidParameterValue", Message: "The receipt handle has expired" };
const TEXT = /^[\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]+$/u;
const ID = /^[\w!"#$%&'()*+,\-./:;<=>?@[\\\]^`{|}~]{1,128}$/;

/** Why a message is refused, by any sender and however often. */
function misfit({ MessageBody, MessageAttributes, MessageGroupId, MessageDeduplicationId }: SqsContent) {
  if (!TEXT.test(MessageBody)) return "MessageBody is empty or has characters that are not allowed";
  if (!ID.test(MessageGroupId)) return "MessageGroupId";
  if (!ID.test(MessageDeduplicationId)) return "MessageDeduplicationId";
  const attributes = Object.entries(MessageAttributes);
  if (attributes.length > 10) return "Number of message attributes exceeds the allowed maximum [10]";
  for (const [name, { DataType, StringValue, BinaryValue }] of attributes) {
    if (!/^(?!aws\.|amazon\.)(?!\.)(?!.*\.\.)[\w.-]{1,256}(?<!\.)$/i.test(name)) return `attribute name ${name}`;
    const isText = DataType === "String" && StringValue !== undefined && TEXT.test(StringValue);
    const isBinary = DataType === "Binary" && BinaryValue !== undefined && BinaryValue.length > 0;
    if (!isText && !isBinary) return `attribute ${name} must contain a non-empty value of its type`;
  }
  return undefined;
}

function batchEntries<E extends { Id: string }>({ Entries }: { Entries: E[] }): E[] {
  if (Entries.length === 0) throw refusal("EmptyBatchRequest", "There should be at least one entry in the request.");
  if (Entries.length > MAX_ENTRIES) throw refusal("TooManyEntriesInBatchRequest", String(Entries.length));
  const ids = new Set(Entries.map(({ Id }) => Id));
  if (ids.size < Entries.length) throw refusal("BatchEntryIdsNotDistinct", "Two or more have the same Id.");
  if (![...ids].every((id) => /^[\w-]{1,80}$/.test(id)))
    throw refusal("InvalidBatchEntryId", "An Id has other letters");
  return Entries;
}

/** Only what was asked for. */
function asReceived(
  one: Stored,
  { MessageAttributeNames = [], MessageSystemAttributeNames = [] }: Receive,
): SqsMessage {
  const { MessageGroupId, MessageDeduplicationId, receiveCount } = one;
  const system = { MessageGroupId, MessageDeduplicationId, ApproximateReceiveCount: String(receiveCount) };
  const asked = Object.entries(system).filter(([name]) => MessageSystemAttributeNames.includes(name));
  const isAll = MessageAttributeNames.includes("All") && Object.keys(one.MessageAttributes).length > 0;
  return {
    MessageId: one.id,
    ReceiptHandle: one.receipt,
    Body: one.MessageBody,
    ...(isAll ? { MessageAttributes: structuredClone(one.MessageAttributes) } : {}),
    ...(asked.length > 0 ? { Attributes: Object.fromEntries(asked) } : {}),
  };
}

function refusal(name: string, message: string): Error {
  return Object.assign(new Error(message), { name, $fault: "client" });
}
