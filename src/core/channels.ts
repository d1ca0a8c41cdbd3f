import { channel, type Channel } from "node:diagnostics_channel";
import { describeError } from "./errors.ts";
import type { Ended } from "./events.ts";
import { printable } from "./printable.ts";

/** Which part of txbox tells an event: the second word of its channel. */
export type Part = "outbox" | "relay" | "inbox" | "subscriber" | "reconciler" | "maintenance" | "store";

/** Kept here: Node.js forgets a channel that nothing refers to. */
const channels = new Map<string, Channel>();

function channelOf(name: string): Channel {
  let known = channels.get(name);
  if (known === undefined) channels.set(name, (known = channel(name)));
  return known;
}

/**
 * Tells the events of a part: on the channel `txbox:<part>:<type>` to all who listen in this process, and to the host's
 * own listener, whose exceptions cost nothing but a warning.
 */
export function eventEmitter<Event extends { type: string }>(
  part: Part,
  onEvent?: (event: Event) => void,
): (event: Event) => void {
  const listener = onEvent === undefined ? undefined : safeListener("onEvent", onEvent);
  const byType = new Map<string, Channel>();
  return (event) => {
    let told = byType.get(event.type);
    if (told === undefined) byType.set(event.type, (told = channelOf(`txbox:${part}:${event.type}`)));
    if (told.hasSubscribers) told.publish(event);
    listener?.(event, event.type);
  };
}

/** A listener that always throws warns once in this time, for each kind of event. */
const WARN_EVERY_MS = 60_000;

/** A listener that throws, or whose promise rejects, costs nothing but a warning. */
export function safeListener<Event>(
  name: string,
  listener: (event: Event) => unknown,
): (event: Event, what: string) => void {
  const quietUntil = new Map<string, number>();
  const warn = (error: unknown, what: string): void => {
    const now = performance.now();
    if (now < (quietUntil.get(what) ?? 0)) return;
    quietUntil.set(what, now + WARN_EVERY_MS);
    process.emitWarning(printable(`${name} threw on "${what}": ${describeError(error)}`), "TxboxWarning");
  };
  return (event, what) => {
    try {
      const result: unknown = listener(event);
      if (result instanceof Promise) result.catch((error: unknown) => warn(error, what));
    } catch (error) {
      warn(error, what);
    }
  };
}

/**
 * Something that takes time, told when it begins and when it ends with one and the same object, so that a listener can
 * keep what belongs to it. Listeners may bind a context to the beginning, as tracing does.
 */
export interface Operation<Told extends object> {
  /** Whether there is a listener: if not, nothing needs to be put together. */
  readonly isHeard: boolean;
  /** Runs between both events. The work may add to the object what came of it; how long it took, and what it threw, come by themselves. */
  run<T>(told: Told, work: () => Promise<T>): Promise<T>;
}

/** On the channels `txbox:<part>:<name>:start` and `txbox:<part>:<name>:end`. */
export function operation<Told extends Ended>(part: Part, name: string): Operation<Told> {
  const start = channelOf(`txbox:${part}:${name}:start`);
  const end = channelOf(`txbox:${part}:${name}:end`);
  return {
    get isHeard() {
      return start.hasSubscribers || end.hasSubscribers;
    },
    run(told, work) {
      const timed = async () => {
        const startedAt = performance.now();
        try {
          return await work();
        } catch (error) {
          told.error = error;
          throw error;
        } finally {
          told.ms = performance.now() - startedAt;
          if (end.hasSubscribers) end.publish(told);
        }
      };
      return start.hasSubscribers ? start.runStores(told, () => contained(told, timed)) : timed();
    },
  };
}

/**
 * Called by a listener at the start of an operation: `run` gets the work and calls it in a context at once, as tracing
 * does. Unlike `bindStore`, it needs no AsyncLocalStorage of one's own.
 */
export function runWithin(told: Ended, run: (work: () => unknown) => unknown): void {
  const outer = told.within;
  told.within = outer === undefined ? run : (work) => outer(() => run(work));
}

const runSafely = safeListener("A context that a listener gave", (run: () => void) => run());

/** The work runs once, whatever becomes of the context that it should run in; at once, though that would call it later. */
function contained<T>(told: Ended, work: () => Promise<T>): Promise<T> {
  const { within } = told;
  if (within === undefined) return work();
  let running: Promise<T> | undefined;
  const once = (): Promise<T> => (running ??= work());
  runSafely(() => {
    const result = within(once);
    // An error of the work reaches the caller by its own promise.
    if (result instanceof Promise) result.catch(() => undefined);
  }, "the start of an operation");
  return once();
}
