import { go, href, type Screen } from "./route.ts";

const PLACES: Readonly<Record<string, Screen>> = {
  o: "",
  m: "messages",
  d: "dead",
  r: "relays",
  c: "doctor",
  s: "story",
};
const TOGETHER_MS = 1500;

export const KEYS: readonly (readonly [keys: string, what: string])[] = [
  ["/", "search"],
  ["g o", "overview"],
  ["g m", "messages"],
  ["g d", "dead letters"],
  ["g r", "relays"],
  ["g c", "doctor (check-up)"],
  ["j  k", "next and previous row"],
  ["Enter", "open the row"],
  ["r", "requeue the row, or what is open"],
  ["?", "this list"],
  ["Esc", "close"],
];

/** Keys for hands that stay on the keyboard. What is typed into a field is left alone. */
export function listenToKeys({ onHelp }: { onHelp: () => void }): () => void {
  let goAt = 0;
  const listener = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event;
    if (target instanceof Element && target.closest("input, textarea, select, dialog") !== null) return;
    const { key } = event;
    if (Date.now() - goAt < TOGETHER_MS) {
      goAt = 0;
      const screen = PLACES[key];
      if (screen !== undefined) {
        event.preventDefault();
        go(href(screen));
        return;
      }
    }
    if (key === "g") goAt = Date.now();
    else if (key === "/") {
      event.preventDefault();
      document.querySelector<HTMLInputElement>("#search")?.focus();
    } else if (key === "j" || key === "k") {
      event.preventDefault();
      moveRow(key === "j" ? 1 : -1);
    } else if (key === "r") requeue();
    else if (key === "?") onHelp();
  };
  addEventListener("keydown", listener);
  return () => removeEventListener("keydown", listener);
}

function rows(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>("[data-row]")];
}

function moveRow(step: number): void {
  const all = rows();
  const now = document.activeElement?.closest<HTMLElement>("[data-row]") ?? null;
  const at = now === null ? -1 : all.indexOf(now);
  const next = all[at === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  const focus = next?.querySelector<HTMLElement>("a, button");
  focus?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function requeue(): void {
  const row = document.activeElement?.closest("[data-row]");
  const button = row?.querySelector<HTMLElement>("[data-action=requeue]");
  const all = document.querySelectorAll<HTMLElement>("[data-action=requeue]");
  if (button !== null && button !== undefined) button.click();
  else if (all.length === 1) all[0]!.click();
}
