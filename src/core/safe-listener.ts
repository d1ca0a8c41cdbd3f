import { describeError } from "./errors.ts";
import { printable } from "./printable.ts";

/** A listener that throws costs nothing but a warning. */
export function safeListener<Event extends { type: string }>(
  listener: ((event: Event) => void) | undefined,
): (event: Event) => void {
  if (listener === undefined) return () => undefined;
  return (event) => {
    try {
      listener(event);
    } catch (error) {
      process.emitWarning(printable(`onEvent threw on "${event.type}": ${describeError(error)}`), "TxboxWarning");
    }
  };
}
