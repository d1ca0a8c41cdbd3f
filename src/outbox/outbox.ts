import { ambientTransaction, runWithTransaction } from "../core/ambient-transaction.ts";
import { operation } from "../core/channels.ts";
import type { Enqueued, PreparedMessage, Writer } from "../core/contracts.ts";
import { contractsOf, type Events } from "../core/event-map.ts";
import { notifyEnqueued } from "../core/enqueue-signal.ts";
import type { EnqueuedMessage, EnqueueOperation } from "../core/events.ts";
import type { AnyEvents, EventMap, NewMessageOf } from "../core/message.ts";
import { rejectUnknownOptions, requireInteger, requireRuntime } from "../core/options.ts";
import { valueKind } from "../core/value-kind.ts";
import { invalidMessage, prepareMessage, requireStream, requireText } from "./prepare-message.ts";
import { TxboxError } from "../core/errors.ts";

export interface OutboxOptions<Map extends EventMap, Tx> {
  store: { readonly name?: string; readonly writer: Writer<Tx> };
  /** Types `type` and `payload` without naming the transaction type; with schemas, payloads are checked. See `defineEvents`. */
  events?: Events<Map>;
  /** Default 1 MiB. */
  maxPayloadBytes?: number;
}

/** Enqueues in the caller's own transaction: the message exists if and only if that transaction commits. */
export interface Outbox<Map extends EventMap, Tx> {
  /** One message or many, in one round trip. Bad input throws before anything is written. */
  enqueue<Type extends keyof Map & string>(
    tx: Tx,
    message: { type: Type } & NewMessageOf<Map, Type>,
  ): Promise<Enqueued>;
  enqueue(tx: Tx, messages: readonly NewMessageOf<Map>[]): Promise<Enqueued[]>;
  // Compilers explain the last form, so it is the one whose errors show the payload of the type at hand.
  enqueue<Type extends keyof Map & string, Types extends readonly (keyof Map & string)[]>(
    tx: Tx,
    messages:
      | ({ type: Type } & NewMessageOf<Map, Type>)
      | { [I in keyof Types]: { type: Types[I] } & NewMessageOf<Map, Types[I]> },
  ): Promise<Enqueued | Enqueued[]>;
  /** Within `run`, also far below it, `enqueueHere` enqueues in this transaction. */
  withTransaction<T>(tx: Tx, run: () => Promise<T>): Promise<T>;
  /** `enqueue` in the transaction of the `withTransaction` around it; outside one it throws `no_transaction`. */
  enqueueHere<Type extends keyof Map & string>(message: { type: Type } & NewMessageOf<Map, Type>): Promise<Enqueued>;
  enqueueHere(messages: readonly NewMessageOf<Map>[]): Promise<Enqueued[]>;
  enqueueHere<Type extends keyof Map & string, Types extends readonly (keyof Map & string)[]>(
    messages:
      | ({ type: Type } & NewMessageOf<Map, Type>)
      | { [I in keyof Types]: { type: Types[I] } & NewMessageOf<Map, Types[I]> },
  ): Promise<Enqueued | Enqueued[]>;
  /**
   * Serialises the writers of a key until the transaction ends; for callers that enqueue before they lock their rows.
   */
  lockKey(tx: Tx, of: { stream: string; key: string }): Promise<void>;
  /** Takes back a message whose `deliverAt` has not come; false when it is too late or unknown. */
  cancel(tx: Tx, id: string): Promise<boolean>;
}

const enqueueOperation = operation<EnqueueOperation>("outbox", "enqueue");

const OPTIONS: readonly (keyof OutboxOptions<EventMap, unknown>)[] = ["store", "events", "maxPayloadBytes"];

/** The whole of one call: more would not fit the database's protocol, whatever the messages. */
const MAX_CALL_BYTES = 128 * 1024 * 1024;

export function createOutbox<Map extends EventMap = AnyEvents, Tx = object>(
  options: OutboxOptions<Map, Tx>,
): Outbox<Map, Tx> {
  requireRuntime("createOutbox");
  requireStore(options);
  rejectUnknownOptions("createOutbox", options, OPTIONS);
  const { store, maxPayloadBytes = 1024 * 1024 } = options;
  requireInteger("createOutbox", "maxPayloadBytes", maxPayloadBytes, 1, MAX_CALL_BYTES);
  const { writer } = store;
  const prepareOptions = { maxPayloadBytes, contracts: contractsOf("createOutbox", options.events) };

  function prepareMany(messages: readonly unknown[], told: EnqueueOperation | undefined): PreparedMessage[] {
    // Not by map, which leaves out the holes of an array.
    const prepared = Array.from(messages, (message) => prepareMessage(message, prepareOptions, told?.headers));
    const chosen = new Set<string>();
    let bytes = 0;
    for (const message of prepared) {
      bytes += message.size;
      if (!message.idChosen) continue;
      if (chosen.has(message.id)) {
        throw invalidMessage(
          "id",
          `id ${JSON.stringify(message.id)} is in this batch twice`,
          "Give each message of a batch its own id",
        );
      }
      chosen.add(message.id);
    }
    if (bytes > MAX_CALL_BYTES) {
      throw new TxboxError("payload_too_large", `The batch has ${bytes} bytes, one call takes ${MAX_CALL_BYTES}`, {
        field: "payload",
        fix: "Enqueue in several calls of the same transaction",
      });
    }
    return prepared;
  }

  async function write(tx: Tx, messages: unknown, told?: EnqueueOperation): Promise<Enqueued[]> {
    const prepared = Array.isArray(messages)
      ? prepareMany(messages, told)
      : [prepareMessage(messages, prepareOptions, told?.headers)];
    if (prepared.length === 0) return [];
    const enqueued = await writer.enqueue(tx, prepared);
    notifyEnqueued(store);
    if (told !== undefined) told.messages = prepared.map((message, i) => writtenAs(message, enqueued[i]!));
    return enqueued;
  }

  async function enqueue(tx: Tx, messages: unknown): Promise<Enqueued | Enqueued[] | undefined> {
    requireTransaction(messages === undefined && looksLikeMessages(tx) ? undefined : tx);
    const told: EnqueueOperation | undefined = enqueueOperation.isHeard
      ? { store: store.name ?? "", headers: {} }
      : undefined;
    const enqueued = await (told === undefined
      ? write(tx, messages)
      : enqueueOperation.run(told, () => write(tx, messages, told)));
    return Array.isArray(messages) ? enqueued : enqueued[0];
  }

  return {
    enqueue: enqueue as Outbox<Map, Tx>["enqueue"],
    async withTransaction(tx, run) {
      requireTransaction(tx);
      if (typeof run !== "function") {
        throw new TxboxError("invalid_option", `withTransaction needs a function, got ${valueKind(run)}`, {
          field: "run",
          fix: "Write outbox.withTransaction(tx, () => …): within it, enqueueHere uses tx",
        });
      }
      return runWithTransaction(writer, tx, run);
    },
    enqueueHere: (async (messages: unknown) => {
      return enqueue(ambientTransaction(writer) as Tx, messages);
    }) as Outbox<Map, Tx>["enqueueHere"],
    async lockKey(tx, of) {
      requireTransaction(tx);
      requireStream(of?.stream);
      await writer.lockKey(tx, of.stream, requireText("key", of.key, 1024));
    },
    async cancel(tx, id) {
      requireTransaction(tx);
      return writer.cancel(tx, requireText("id", id, 200));
    },
  };
}

function writtenAs({ stream, type, key, size }: PreparedMessage, { id, duplicate }: Enqueued): EnqueuedMessage {
  return { id, duplicate, stream, type, key, size };
}

function requireStore(options: unknown): void {
  if (typeof options === "object" && options !== null && "store" in options) {
    const { store } = options;
    if (typeof store === "object" && store !== null && "writer" in store) return;
  }
  throw new TxboxError("invalid_option", "createOutbox needs a store", {
    field: "store",
    fix: "Pass { store: createPostgresStore({ client: pool }) }",
  });
}

/** The caller forgot the transaction and passed the message in its place. */
function looksLikeMessages(value: unknown): boolean {
  return Array.isArray(value) || (typeof value === "object" && value !== null && "type" in value && "payload" in value);
}

function requireTransaction(tx: unknown): void {
  if ((typeof tx === "object" && tx !== null) || typeof tx === "function") return;
  throw new TxboxError("no_transaction", `A transaction is needed, got ${valueKind(tx)}`, {
    field: "tx",
    fix: "Pass the transaction that writes your own data as the first argument: enqueue(tx, message)",
  });
}
