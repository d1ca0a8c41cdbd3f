import { valueKind } from "../../core/value-kind.ts";
import { invalid } from "../shared/messaging.ts";

/** What a method handles. */
export interface HandlerMark {
  readonly method: string;
  readonly type: string;
  readonly consumer: string | undefined;
}

/** By a registered symbol: an application may have two copies of the package. */
const MARKS = Symbol.for("txbox.onMessage");

interface Marked {
  [MARKS]?: HandlerMark[];
}

/** The signature of a method decorator; the method gets `(tx, message, context)`. */
export type HandlerDecorator = <Method extends (tx: never, message: never, context: never) => Promise<unknown> | void>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void;

/**
 * Marks a method of a provider or controller as the handler of a message type. `consumer` names the inbox where there is more
 * than one.
 */
export function OnMessage(type: string, consumer?: string): HandlerDecorator {
  if (typeof type !== "string" || type === "") {
    throw invalid("OnMessage", `@OnMessage needs a message type, got ${valueKind(type)}`, FORM);
  }
  if (consumer !== undefined && (typeof consumer !== "string" || consumer === "")) {
    throw invalid("OnMessage", `@OnMessage("${type}"): the consumer is ${valueKind(consumer)}`, FORM);
  }
  return (target, method) => {
    if (typeof method !== "string" || typeof target !== "object") {
      throw invalid("OnMessage", `@OnMessage("${type}") is not on a method`, "Put it on a method with a plain name");
    }
    const holder = target as Marked;
    if (!Object.hasOwn(holder, MARKS)) Object.defineProperty(holder, MARKS, { value: [] });
    holder[MARKS]!.push({ method, type, consumer });
  };
}

const FORM =
  'Write @OnMessage("order_created"), or @OnMessage("order_created", "payments") where there is more than one inbox';

/** The marks of an instance, those of the classes that it extends included. A method that was overridden counts once. */
export function marksOf(instance: object): HandlerMark[] {
  const found = new globalThis.Map<string, HandlerMark[]>();
  for (let of: object | null = Object.getPrototypeOf(instance); of !== null; of = Object.getPrototypeOf(of)) {
    if (!Object.hasOwn(of, MARKS)) continue;
    const own = Object.groupBy((of as Marked)[MARKS]!, ({ method }) => method);
    for (const [method, marks] of Object.entries(own)) if (!found.has(method)) found.set(method, marks!);
  }
  return [...found.values()].flat();
}
