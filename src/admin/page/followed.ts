import { useEffect } from "preact/hooks";
import { usePage } from "./page-context.ts";

/**
 * Asks again when the number of dead letters or blocked keys has changed, at most once in two seconds. A number tells
 * nothing of a letter that was requeued and has died again since: what is under way is asked for every `everyMs`.
 */
export function useFollowed(reload: () => void, of: "dead" | "blockedKeys", everyMs?: number): void {
  const { live } = usePage();
  const relays = live.overview?.stores.flatMap((store) => store.relays) ?? [];
  const sum = relays.reduce((total, relay) => total + relay[of], 0);
  useEffect(() => {
    const timer = setTimeout(reload, 1500);
    return () => clearTimeout(timer);
  }, [sum]);
  const isLost = live.lostSince !== null;
  useEffect(() => {
    if (everyMs === undefined || isLost) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, isLost, reload]);
}
