import { useEffect, useState } from "preact/hooks";

/** The screens, as they stand in the address. Overview is the folder itself. */
export type Screen = "" | "messages" | "story" | "dead" | "relays" | "doctor";
const SCREENS: readonly string[] = ["", "messages", "story", "dead", "relays", "doctor"];

export type Params = Readonly<Record<string, string>>;

export interface Route {
  screen: Screen;
  params: Params;
}

/** All screens are files of one folder, in which this script is too, wherever the page is mounted. */
export const folder = new URL(".", import.meta.url).pathname;

export function currentRoute(): Route {
  const name = location.pathname.slice(folder.length);
  const screen = (SCREENS.includes(name) ? name : "") as Screen;
  return { screen, params: Object.fromEntries(new URLSearchParams(location.search)) };
}

/** The address of a screen, with the parameters that have a value. */
export function href(screen: Screen, params: Readonly<Record<string, string | undefined>> = {}): string {
  const given = Object.entries(params).filter((entry): entry is [string, string] => (entry[1] ?? "") !== "");
  const query = new URLSearchParams(given).toString();
  return `${folder}${screen}${query === "" ? "" : `?${query}`}`;
}

/** What the server says as `dead?relay=…`. */
export function hrefOf(link: string): string {
  return `${folder}${link}`;
}

const listeners = new Set<() => void>();

export function go(to: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", to);
  else {
    history.pushState(null, "", to);
    scrollTo(0, 0);
  }
  for (const listener of listeners) listener();
}

/** Changes some parameters of the screen that is shown. */
export function change(
  params: Readonly<Record<string, string | undefined>>,
  options: { replace?: boolean } = {},
): void {
  const now = currentRoute();
  go(href(now.screen, { ...now.params, ...params }), options);
}

export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const update = (): void => setRoute(currentRoute());
    listeners.add(update);
    addEventListener("popstate", update);
    return () => {
      listeners.delete(update);
      removeEventListener("popstate", update);
    };
  }, []);
  return route;
}

/** Links of the page itself change the screen without a new load. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(folder) || link.hash !== "") return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
