import { useEffect, useState } from "preact/hooks";
import type { History, Overview, PageSession } from "../page-api.ts";
import { folder } from "./route.ts";
import { get, isRefusal, SIGNED_OUT } from "./server.ts";

export interface Live {
  overview: Overview | undefined;
  history: History | undefined;
  /** Since when nothing has come any more; null: all is well. */
  lostSince: number | null;
}

/** A server that is busy sends less often, though never as seldom as this. */
const SILENT_MS = 25_000;
const AGAIN_MS = 2000;

/** What the server tells by itself. A connection that is lost is made anew, and what was known stays. */
export function useLive(): Live {
  const [live, setLive] = useState<Live>({ overview: undefined, history: undefined, lostSince: null });
  useEffect(() => {
    let source: EventSource | undefined;
    let again: ReturnType<typeof setTimeout> | undefined;
    let heardAt = Date.now();
    const heard = (change: Partial<Live>): void => {
      heardAt = Date.now();
      setLive((before) => ({ ...before, ...change, lostSince: null }));
    };
    const lost = (): void => setLive((before) => ({ ...before, lostSince: before.lostSince ?? heardAt }));
    const open = (): void => {
      source?.close();
      source = new EventSource(`${folder}api/live`);
      source.addEventListener("overview", ({ data }) => heard({ overview: JSON.parse(data as string) as Overview }));
      source.addEventListener("history", ({ data }) => heard({ history: JSON.parse(data as string) as History }));
      // The server wants to see again who it is.
      source.addEventListener("again", open);
      source.addEventListener("error", () => {
        lost();
        if (source?.readyState === EventSource.CLOSED) void refused();
      });
    };
    /** The server answers, but does not let this page listen: the session may be over, or the right to see it. */
    const refused = async (): Promise<void> => {
      clearTimeout(again);
      if (await isSignedOut()) dispatchEvent(new Event(SIGNED_OUT));
      again = setTimeout(open, AGAIN_MS);
    };
    const watch = setInterval(() => {
      if (document.hidden || Date.now() - heardAt <= SILENT_MS) return;
      lost();
      open();
    }, SILENT_MS);
    // A hidden page asks for nothing.
    const seen = (): void => {
      clearTimeout(again);
      if (document.hidden) source?.close();
      else open();
    };
    document.addEventListener("visibilitychange", seen);
    open();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      clearInterval(watch);
      clearTimeout(again);
      source?.close();
    };
  }, []);
  return live;
}

async function isSignedOut(): Promise<boolean> {
  try {
    return (await get<PageSession>("session")).tokenNeeded;
  } catch (error) {
    return isRefusal(error);
  }
}

/** The time, again and again: for how long ago something was. */
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
