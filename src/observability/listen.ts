import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { safeListener } from "../core/channels.ts";
import type { Channels } from "../core/events.ts";

/**
 * Hears what is told on a channel by every outbox, relay, inbox and subscriber of this process; gives the function that
 * ends it. A listener that throws costs nothing but a warning. It is called in the middle of the work: keep it short.
 */
export function listen<Name extends keyof Channels>(
  channel: Name,
  listener: (told: Channels[Name]) => unknown,
): () => void {
  const safe = safeListener(`A listener of ${channel}`, listener);
  const hear = (told: unknown): void => safe(told as Channels[Name], channel);
  subscribe(channel, hear);
  return () => void unsubscribe(channel, hear);
}
