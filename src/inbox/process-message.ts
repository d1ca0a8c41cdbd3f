import { runHandling } from "../core/causation.ts";
import { eventEmitter } from "../core/channels.ts";
import { NewerVersionError, readPayload } from "../core/check-payload.ts";
import { decodePayload } from "../core/codec.ts";
import type { HandleResult, Ledger, Receipt, ReceiptFilter, ReceiptScope, Store, Writer } from "../core/contracts.ts";
import { describeError, errorCode, PermanentError } from "../core/errors.ts";
import type { Contracts } from "../core/event-map.ts";
import type { Handled, InboxEvent } from "../core/events.ts";
import { notifyEnqueued } from "../core/enqueue-signal.ts";
import type { HandledMessage, IncomingMessage } from "../core/message.ts";
import { plainIncoming } from "../core/plain-message.ts";
import { textOrNull } from "../core/text-or-null.ts";
import type { HandlerFunction } from "./handler-registry.ts";
import { HandlerDeadline } from "./handler-timeout.ts";
import { typeOf } from "./incoming-message.ts";
import { judgeFailure } from "./judge-failure.ts";
import { messageIdOf } from "./message-id.ts";
import { receiptHolder } from "./receipt-scope.ts";
import { toStored } from "./stored-message.ts";

export type Attempt =
  | { readonly status: "done"; readonly handled: Handled }
  | Exclude<HandleResult, { status: "done" }>;

export interface ProcessingOptions<Tx> {
  store: { readonly ledger: Ledger<Tx>; readonly writer: Writer<never>; readonly classify: Store["classify"] };
  consumer: string;
  receiptScope: ReceiptScope;
  handlerTimeoutMs: number;
  maxAttempts: number | undefined;
  filter?: ReceiptFilter | undefined;
  /** What is agreed about the message types; undefined: nothing, and payloads are not checked. */
  contracts: Contracts | undefined;
}

const emit = eventEmitter<InboxEvent>("inbox");

/** One message, one transaction, and a record of the failure when that was rolled back. */
export class MessageProcessor<Tx> {
  readonly #options: ProcessingOptions<Tx>;

  constructor(options: ProcessingOptions<Tx>) {
    this.#options = options;
  }

  /** Receipt and handler in one transaction. */
  async process(message: IncomingMessage, handler: HandlerFunction<Tx>, outer: AbortSignal): Promise<Attempt> {
    const { store, consumer, handlerTimeoutMs, contracts } = this.#options;
    const receipt = this.#receipt(message);
    if ("status" in receipt) return receipt;
    const { messageId: id, type } = receipt;
    let began = false;
    const run = async (): Promise<Handled> => {
      const decoded = read(() => {
        const payload = decodePayload(message.body, message.headers.contentType);
        return { ...plainIncoming(message), id, type, payload };
      });
      const handled = contracts === undefined ? decoded : this.#checked(contracts, decoded);
      const context = { module: consumer, id, type, headers: message.headers };
      const deadline = new HandlerDeadline(handlerTimeoutMs);
      const transaction = store.ledger.transaction(async (tx): Promise<Handled> => {
        began = false;
        if (!(await deadline.wait(store.ledger.receive(tx, receipt, "processed")))) return "duplicate";
        began = true;
        await deadline.race((given) => runHandling(context, async () => handler(tx, handled, given)), outer);
        return "processed";
      });
      return deadline.guard(transaction);
    };
    return this.#attempt(receipt, this.#filtered(receipt, "processed", run), () => began);
  }

  /** Receipt and message into the own log in one transaction. */
  async store(message: IncomingMessage): Promise<Attempt> {
    const { store, consumer, handlerTimeoutMs } = this.#options;
    const receipt = this.#receipt(message);
    if ("status" in receipt) return receipt;
    const run = async (): Promise<Handled> => {
      const deadline = new HandlerDeadline(handlerTimeoutMs);
      const prepared = read(() => toStored(consumer, receipt.messageId, receipt.type, message));
      const transaction = store.ledger.transaction(async (tx) => {
        if (!(await deadline.wait(store.ledger.receive(tx, receipt, "received")))) return false;
        await store.writer.enqueue(tx as never, [prepared]);
        return true;
      });
      const stored = await deadline.guard(transaction);
      if (!stored) return "duplicate";
      notifyEnqueued(store);
      return "stored";
    };
    return this.#attempt(receipt, this.#filtered(receipt, "received", run), () => false);
  }

  /** For a message that no handler will see. */
  async reject(message: IncomingMessage, error: unknown): Promise<Attempt> {
    const receipt = this.#receipt(message);
    if ("status" in receipt) return receipt;
    return this.#attempt(
      receipt,
      () => Promise.reject(error),
      () => true,
    );
  }

  /** With the payload as its contract gives it, whatever the version in which it was written. */
  #checked<M extends HandledMessage>(contracts: Contracts, message: M): M {
    const { id, type, headers } = message;
    const contract = contracts.get(type);
    if (contract === undefined) {
      throw new PermanentError(`events has no "${type}", so its payload cannot be checked`, {
        field: "type",
        fix: "Add it to defineEvents",
      });
    }
    try {
      return { ...message, payload: readPayload(contract, headers, message.payload) };
    } catch (error) {
      if (error instanceof NewerVersionError) {
        const { consumer } = this.#options;
        emit({
          type: "newer_version",
          consumer,
          id,
          messageType: type,
          version: error.version,
          known: contract.version,
        });
      }
      throw error;
    }
  }

  /** Does not ask the database for a receipt that is known to be in its ledger. */
  #filtered(receipt: Receipt, status: "received" | "processed", run: () => Promise<Handled>): () => Promise<Handled> {
    const { filter } = this.#options;
    if (filter === undefined) return run;
    return async () => {
      if (await filter.seen(receipt, status)) return "duplicate";
      const handled = await run();
      filter.remember(receipt, status);
      return handled;
    };
  }

  async #attempt(receipt: Receipt, run: () => Promise<Handled>, handlerBegan: () => boolean): Promise<Attempt> {
    try {
      return { status: "done", handled: await run() };
    } catch (error) {
      const verdict = judgeFailure(error, handlerBegan(), this.#options.store);
      // The day of an expired id has no place for receipts.
      if (verdict.status === "unavailable" || errorCode(error) === "receipt_expired") return verdict;
      return this.#record(receipt, verdict);
    }
  }

  async #record(receipt: Receipt, verdict: Exclude<Attempt, { status: "done" }>): Promise<Attempt> {
    const { store, maxAttempts = Number.POSITIVE_INFINITY } = this.#options;
    const { error } = verdict;
    try {
      const attempts = await store.ledger.fail(receipt, describeError(error));
      // By this attempt, whose commit got no answer, or by another delivery that waited for it to fail.
      if (attempts === "processed") return { status: "done", handled: "duplicate" };
      return verdict.status === "failed" && attempts >= maxAttempts ? { status: "rejected", error } : verdict;
    } catch (recording) {
      // If even the failure cannot be recorded, the database is out of reach: the message is not to blame.
      return judgeFailure(recording, false, store).status === "unavailable"
        ? { status: "unavailable", error }
        : verdict;
    }
  }

  /** A message that cannot be named is rejected without a receipt. */
  #receipt(message: IncomingMessage): Receipt | Extract<Attempt, { status: "rejected" }> {
    try {
      return read(() => ({
        consumer: receiptHolder(this.#options.consumer, this.#options.receiptScope, message),
        messageId: messageIdOf(message),
        type: typeOf(message) ?? "unknown",
        correlationId: textOrNull(message.headers.correlationId),
      }));
    } catch (error) {
      return { status: "rejected", error };
    }
  }
}

/** An error while a message is read is the fault of the message, never of the database. */
function read<T>(open: () => T): T {
  try {
    return open();
  } catch (error) {
    if (errorCode(error) === "permanent") throw error;
    throw new PermanentError(`The message cannot be read: ${describeError(error)}`, { cause: error });
  }
}
