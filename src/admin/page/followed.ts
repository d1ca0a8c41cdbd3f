import { useEffect } from "preact/hooks";
import { usePage } from "./page-context.ts";

/** Asks again when the number of dead letters or blocked keys has changed, at most once in two seconds. */
export function useFollowed(reload: () => void, of: "dead" | "blockedKeys"): void {
  const { live } = usePage();
  const relays = live.overview?.stores.flatMap((store) => store.relays) ?? [];
  const sum = relays.reduce((total, relay) => total + relay[of], 0);
  useEffect(() => {
    const timer = setTimeout(reload, 1500);
    return () => clearTimeout(timer);
  }, [sum]);
}
