import type { LiveEvent, LiveReadings } from "./live-readings.ts";

/** Proxies end connections that are silent for long. */
const ALIVE_MS = 15_000;
/** What a slow page has not read yet, in bytes; above this, events are left out: the next one says all. */
const MOST_BEHIND = 2_000_000;

/** After this time a page has to ask again, with what it may see by then. */
const LASTS_MS = 5 * 60_000;

/** Server-sent events of the live readings; ends when the page goes, after some minutes, or with the signal. */
export function eventStream(readings: LiveReadings, ends: AbortSignal): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let end = (): void => undefined;
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const send = (text: string): void => {
          if ((controller.desiredSize ?? 0) > 0) controller.enqueue(encoder.encode(text));
        };
        const stopListening = readings.listen(({ event, data }: LiveEvent) =>
          send(`event: ${event}\ndata: ${data}\n\n`),
        );
        const alive = setInterval(() => send(": alive\n\n"), ALIVE_MS).unref();
        const close = (): void => {
          end();
          controller.close();
        };
        const over = setTimeout(() => {
          send("event: again\ndata: \n\n");
          close();
        }, LASTS_MS).unref();
        end = () => {
          clearInterval(alive);
          clearTimeout(over);
          stopListening();
          ends.removeEventListener("abort", close);
        };
        ends.addEventListener("abort", close, { once: true });
        send("retry: 2000\n\n");
      },
      cancel() {
        end();
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: MOST_BEHIND }),
  );
}
