import { randomUUID } from "node:crypto";
import {
  callback,
  createPublisher,
  createSubscriber,
  deadHeaders,
  Deliveries,
  HeldMessages,
  integer,
  methods,
  milliseconds,
  openDelivery,
  publishInBatches,
  readOptions,
  SUBSCRIBER_OPTIONS,
  SubscriberOutage,
  subscriberSettings,
  text,
  type OptionSpecs,
  type SubscriberOptions,
} from "../../../../src/adapter/index.ts";
import type { Message, Publisher, Subscriber } from "../../../../src/index.ts";
import { answerOf, MAX_BYTES, MAX_ENTRIES, refusals, type SqsClient } from "./sqs-client.ts";
import { deadContent, encodeMessage, openMessage, sizeOfContent, unopened } from "./sqs-envelope.ts";

export interface SqsOptions {
  /** `new SQS({ maxAttempts: 1 })` of @aws-sdk/client-sqs. It stays yours to close. */
  client: SqsClient;
  /** Without an answer for this long, SQS counts as out. Default 10 s. */
  timeoutMs?: number;
}

export interface SqsPublisherOptions extends SqsOptions {
  /** The URL of the FIFO queue for a message. */
  queueUrl: (message: Message) => string;
}

export interface SqsSubscriberOptions extends SqsOptions, SubscriberOptions {
  /** A FIFO queue. Its redrive policy, well above `maxAttempts`, ends a message that kills its process. */
  queueUrl: string;
  /** The FIFO queue for messages that cannot be handled. */
  deadLetterUrl: string;
  /** The messages of a process that died come again after this time. Default 30. */
  visibilitySeconds?: number;
}

const COMMON = {
  client: methods<SqsClient>(["sendMessageBatch", "receiveMessage"], "Pass client: new SQS({ maxAttempts: 1 })"),
  timeoutMs: milliseconds(10_000),
} satisfies OptionSpecs<SqsOptions>;
const PUBLISHER = {
  ...COMMON,
  queueUrl: callback<SqsPublisherOptions["queueUrl"]>("Pass queueUrl: (message) => …"),
} satisfies OptionSpecs<SqsPublisherOptions>;
const SUBSCRIBER = {
  ...COMMON,
  ...SUBSCRIBER_OPTIONS,
  queueUrl: text('Pass queueUrl: "https://…/orders.fifo"'),
  deadLetterUrl: text('Pass deadLetterUrl: "https://…/orders-dead.fifo"'),
  visibilitySeconds: integer(1, 43_200, 30),
} satisfies OptionSpecs<SqsSubscriberOptions>;

/** Publishes to FIFO queues; a key is a message group. */
export function createSqsPublisher(options: SqsPublisherOptions): Publisher {
  const { queueUrl, ...link } = readOptions("createSqsPublisher", options, PUBLISHER);
  return createPublisher({
    keepsKeyOrder: true,
    publish: (batch) =>
      publishInBatches(batch, {
        most: MAX_ENTRIES,
        bytes: { most: MAX_BYTES, of: sizeOfContent },
        target: queueUrl,
        encode: encodeMessage,
        send: (url, contents) => refusals(link, "sendMessageBatch", url, contents, batch.signal),
      }),
  });
}

/** Takes messages from a FIFO queue. A message group is one process's at a time, so keys keep their order. */
export function createSqsSubscriber(options: SqsSubscriberOptions): Subscriber {
  const read = readOptions("createSqsSubscriber", options, SUBSCRIBER);
  const { client, queueUrl, deadLetterUrl, visibilitySeconds, timeoutMs } = read;
  const settings = subscriberSettings(read);
  const receiptsOf = (receipts: readonly string[], more = {}) =>
    receipts.map((ReceiptHandle) => ({ ReceiptHandle, ...more }));
  const hide = (receipts: readonly string[], VisibilityTimeout: number) =>
    refusals(read, "changeMessageVisibilityBatch", queueUrl, receiptsOf(receipts, { VisibilityTimeout }));

  return createSubscriber(async (consumer, handle, stopping) => {
    const deliveries = new Deliveries(consumer, handle, settings);
    const held = new HeldMessages({
      most: MAX_ENTRIES,
      holdMs: visibilitySeconds * 1000,
      acknowledge: (receipts) => refusals(read, "deleteMessageBatch", queueUrl, receiptsOf(receipts)),
      renew: (receipts) => hide(receipts, visibilitySeconds),
      release: (receipts) => hide(receipts, 0),
    });
    /** Of a request that was not answered: asked again under this name, SQS gives the same messages. */
    let attempt: string | undefined;

    async function receive(count: number, WaitTimeSeconds: number, abortSignal?: AbortSignal): Promise<void> {
      const request = {
        QueueUrl: queueUrl,
        MaxNumberOfMessages: Math.min(MAX_ENTRIES, count),
        VisibilityTimeout: visibilitySeconds,
        WaitTimeSeconds,
        ReceiveRequestAttemptId: (attempt ??= randomUUID()),
        MessageAttributeNames: ["All"],
        MessageSystemAttributeNames: ["MessageGroupId"],
      };
      const asking = client.receiveMessage(request, { abortSignal });
      const { Messages = [] } = await answerOf(queueUrl, asking, timeoutMs + WaitTimeSeconds * 1000, abortSignal);
      attempt = undefined;
      for (const message of Messages) {
        const { ReceiptHandle: receipt = "", Attributes } = message;
        deliveries.take({
          ...openDelivery(message, (one) => openMessage(one, queueUrl), unopened),
          // SQS counts every delivery, also of messages that were given back.
          attempts: 0,
          signal: held.add(receipt, Attributes?.MessageGroupId),
          done: () => held.done(receipt),
          async moveToDeadLetters(error, attempts) {
            const dead = deadContent(message, deadHeaders(consumer, error, attempts));
            const [refusal] = await refusals(read, "sendMessageBatch", deadLetterUrl, [dead]);
            if (refusal !== undefined) throw refusal;
            held.done(receipt);
          },
          release: () => held.release(receipt),
        });
      }
    }

    // A queue that is missing ends the start.
    await receive(1, 0, stopping);
    const taking = new SubscriberOutage(consumer, settings).keepTaking(async () => {
      const room = await deliveries.room(MAX_BYTES);
      if (room > 0) await receive(room, 20, stopping);
    }, stopping);
    return {
      async stop() {
        await deliveries.stop();
        await taking;
        // What the request brought that was cut off goes back at once.
        if (attempt !== undefined) await receive(MAX_ENTRIES, 0).catch(() => undefined);
        await deliveries.stop();
        await held.end();
      },
    };
  });
}
