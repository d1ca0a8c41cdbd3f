import type { Enqueued } from "../../core/contracts.ts";
import type { Message, NewMessage } from "../../core/message.ts";
import { createOutbox } from "../../outbox/outbox.ts";
import type { AnyTx, StoreContext } from "./store-context.ts";

/** A message whose payload is `n`; stream, type and key have defaults that the case may override. */
export function message(n: unknown, more: Partial<NewMessage> = {}): NewMessage {
  return { stream: "s", type: "t", payload: n, key: "k", ...more };
}

export function numbered(from: number, to: number, more: Partial<NewMessage> = {}): NewMessage[] {
  return Array.from({ length: to - from + 1 }, (_, i) => message(from + i, more));
}

export function enqueueIn(
  { store }: Pick<StoreContext, "store">,
  tx: AnyTx,
  messages: readonly NewMessage[],
): Promise<Enqueued[]> {
  return createOutbox({ store }).enqueue(tx, messages);
}

/** Enqueues in a transaction of its own. */
export function enqueue(
  context: Pick<StoreContext, "store" | "transaction">,
  ...messages: NewMessage[]
): Promise<Enqueued[]> {
  return context.transaction((tx) => enqueueIn(context, tx, messages));
}

export interface OpenTransaction {
  readonly tx: AnyTx;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

/** A transaction that stays open until the case ends it. */
export async function begin({ transaction }: Pick<StoreContext, "transaction">): Promise<OpenTransaction> {
  const opened = Promise.withResolvers<AnyTx>();
  const ending = Promise.withResolvers<"commit" | "rollback">();
  const undone = new Error("rolled back");
  const done = transaction(async (tx) => {
    opened.resolve(tx);
    if ((await ending.promise) === "rollback") throw undone;
  }).catch((error: unknown) => {
    opened.reject(error);
    if (error !== undone) throw error;
  });
  done.catch(() => undefined);
  const end = (how: "commit" | "rollback"): Promise<void> => {
    ending.resolve(how);
    return done;
  };
  return { tx: await opened.promise, commit: () => end("commit"), rollback: () => end("rollback") };
}

/** The payloads, decoded. */
export function payloads(messages: readonly Pick<Message, "body">[]): unknown[] {
  return messages.map(({ body }) => (typeof body === "string" ? (JSON.parse(body) as unknown) : body));
}

export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

/** In an order of their own, for messages whose order is not promised. */
export function sorted(values: readonly unknown[]): unknown[] {
  return values.toSorted((a, b) => (String(a) < String(b) ? -1 : 1));
}
