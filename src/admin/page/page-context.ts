import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { ActionRequest, AdminAction, Overview, PageSession } from "../page-api.ts";
import type { Live } from "./live.ts";

/** An action that a person asked for; the dialog asks who, why and whether. */
export interface Asked {
  title: string;
  request: Omit<ActionRequest, "actor" | "reason">;
  /** Called when it was carried out. */
  onDone?: () => void;
}

export interface PageContext {
  session: PageSession;
  live: Live;
  ask: (asked: Asked) => void;
}

export const Page = createContext<PageContext | undefined>(undefined);

export function usePage(): PageContext {
  const context = useContext(Page);
  if (context === undefined) throw new Error("There is no page around this");
  return context;
}

export function useMay(): (action: AdminAction) => boolean {
  const { session } = usePage();
  return (action) => session.may.includes(action);
}

/** Names of relays, of one store or of all. */
export function relayNames(overview: Overview | undefined, store: string | undefined): string[] {
  const stores = overview?.stores.filter(({ name }) => store === undefined || store === "" || name === store) ?? [];
  return [...new Set(stores.flatMap(({ relays }) => relays.map(({ name }) => name)))].toSorted();
}
