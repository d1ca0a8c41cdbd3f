import { PermanentError, TxboxError } from "../core/errors.ts";
import type { Contracts } from "../core/event-map.ts";
import type { EventMap, HandledMessage, HandledPayload } from "../core/message.ts";
import { nearest } from "../core/options.ts";

export interface HandlerContext {
  /** Aborts when the handler's time is over or the relay lost its lease; what is done after that is rolled back. */
  readonly signal: AbortSignal;
}

/** A method's parameters may be narrower, so that a handler can name the transaction type of its own driver. */
type HandlerOf<Tx, M> = { call(tx: Tx, message: M, context: HandlerContext): Promise<unknown> | void }["call"];

/** Changes made through `tx` commit together with the receipt, so they happen once. */
export type HandlerFunction<Tx, Type extends string = string, Payload = unknown> = HandlerOf<
  Tx,
  HandledMessage<Type, Payload>
>;

/** A handler of any message of the map; `message.type` tells them apart. */
export type AnyHandler<Tx, Map extends EventMap> = HandlerOf<
  Tx,
  { [Type in keyof Map & string]: HandledMessage<Type, HandledPayload<Map[Type]>> }[keyof Map & string]
>;

/** What to do with a type that has no handler. */
export type UnknownTypes = "skip" | "reject";

/** Handlers by message type, one each. */
export class HandlerRegistry<Tx> {
  readonly #handlers = new Map<string, HandlerFunction<Tx>>();
  readonly #unknownTypes: UnknownTypes;
  readonly #contracts: Contracts | undefined;

  constructor(unknownTypes: UnknownTypes, contracts?: Contracts) {
    this.#unknownTypes = unknownTypes;
    this.#contracts = contracts;
  }

  get types(): string[] {
    return [...this.#handlers.keys()];
  }

  add(type: unknown, handler: unknown): void {
    if (typeof type !== "string" || type === "")
      throw invalid("type", "inbox.on needs a message type", 'Call inbox.on("order_created", handler)');
    if (typeof handler !== "function")
      throw invalid("handler", `The handler of ${type} must be a function`, "Pass async (tx, message) => { … }");
    if (this.#handlers.has(type))
      throw invalid("type", `There is a handler of ${type} already`, "Use one handler per type, or another consumer");
    if (this.#contracts?.has(type) === false) {
      const known = [...this.#contracts.keys()];
      const near = nearest(type, known);
      const fix =
        near === undefined ? `There are ${known.join(", ")}; add it to defineEvents` : `Did you mean "${near}"?`;
      throw invalid("type", `events has no "${type}"`, fix);
    }
    this.#handlers.set(type, handler as HandlerFunction<Tx>);
  }

  /** Undefined when this consumer does not handle messages of this type. */
  find(type: string | undefined): HandlerFunction<Tx> | undefined {
    const handler = type === undefined ? undefined : this.#handlers.get(type);
    if (handler === undefined && this.#unknownTypes === "reject") {
      throw new PermanentError(`There is no handler of ${type ?? "a message without a type"}`, {
        field: "type",
        fix: `Register one; there are handlers of ${this.types.join(", ")}`,
      });
    }
    return handler;
  }
}

function invalid(field: string, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", message, { field, fix });
}
