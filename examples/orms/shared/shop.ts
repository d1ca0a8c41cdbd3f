import type { Inbox, Store } from "txbox";

/** What each ORM's service does, and the show calls. */
export interface Shop {
  readonly store: Store;
  readonly inbox: Pick<Inbox<never, never>, "start" | "stop">;
  /** An order and its message in one transaction. */
  placeOrder(id: string, total: number): Promise<void>;
  /** The same, and then the transaction fails. */
  placeOrderAndFail(id: string): Promise<void>;
  /** The same without waiting for the message, which comes so much later: while the transaction ends, or after that. */
  placeOrderAndForget(id: string, afterMs: number): Promise<void>;
  /** A gift in a nested transaction that fails; the order stays. */
  placeOrderWithoutGift(id: string, giftId: string): Promise<void>;
  /** Many messages by one call. */
  placeOrders(ids: readonly string[]): Promise<void>;
  /** The message comes from a function that does not know the transaction. */
  placeOrderFromBelow(id: string): Promise<void>;
  /** With what is no transaction: the ORM itself. */
  enqueueOutside(): Promise<unknown>;
  /** In a transaction that has ended. */
  enqueueTooLate(): Promise<unknown>;
  /** Any statement in a transaction that a handler was given. */
  sql(tx: never, text: string): Promise<unknown>;
  close(): Promise<void>;
}

/** What a handler throws for an order that cannot be paid, after it has written. */
export const UNPAYABLE = -1;

/** Of an order of this size, the handler tries to take the payment twice, in a nested transaction that it rolls back. */
export const LARGE = 1000;
