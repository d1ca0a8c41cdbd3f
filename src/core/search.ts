import type { MessageInfo, MessageStatus, ReceiptInfo } from "./admin.ts";

/** Looking for messages, and for what became of them: page by page, each page within a budget. */

/**
 * Which messages to show, newest first, each as often as there are relays for it. A scheduled message has no place in
 * the log yet: it comes last, or where its time of enqueueing puts it.
 */
export interface MessageSearch {
  /** This field and the next four are found by an index, however long the log is. */
  id?: string;
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  correlationId?: string;
  /** These are looked for page by page, from the newest message back. `dead` and `scheduled` have an order of their own. */
  stream?: string;
  type?: string;
  status?: MessageStatus;
  relay?: string;
  /** Enqueued from `since` on and before `until`. A scheduled message may count by the time when it was due as well. */
  since?: Date;
  until?: Date;
  /** `next` of the page before, of the same search. */
  after?: string;
  /** From 1 to 1,000. Default 100. A page of large messages ends sooner. */
  limit?: number;
  /** False: without bodies, headers and the times of errors, for lists and counts; they come empty. Default true. */
  contents?: boolean;
}

/** A page may be empty though others follow: it looks at so many messages and no more. */
export interface MessagePage {
  messages: MessageInfo[];
  /** Where the next page begins; null: there is no more. */
  next: string | null;
  /** This page and those before it have looked at all that was enqueued from here on; null: at all there is in the log. */
  lookedBackTo: Date | null;
}

/** Whose open messages to show, oldest first. */
export interface WaitingQuery {
  relay: string;
  stream: string;
  key: string;
  /** Only what comes after this position: that of the last message of a page gives the next page. */
  after?: bigint;
  /** From 1 to 1,000. Default 100. */
  limit?: number;
  /** False: without bodies, headers and the times of errors, for lists and counts; they come empty. Default true. */
  contents?: boolean;
}

/** What a consumer knows of a message. There is one only where there is a receipt. */
export interface MessageReceipt extends ReceiptInfo {
  id: string;
  consumer: string;
}

export interface ConsumerInfo {
  consumer: string;
  /** Of its newest message, or of its last sample; null when neither is known. */
  lastReceivedAt: Date | null;
  /** Receipts of failed attempts that were not made good; null where only a long count could tell. */
  failed: number | null;
}

export interface RewindPreview {
  /** How many messages the relay would send again; exact up to 10,000. */
  messages: number;
  estimated: boolean;
  /** When the first of them was enqueued; null: there is none. */
  from: Date | null;
}
