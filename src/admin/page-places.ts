import type { BlockedKey, BlockedPlace, DeadPlace } from "../core/contracts.ts";
import { PageFailure } from "./page-failure.ts";

/** The place of a page's last entry, as a text for its address. */
export function placeText(place: DeadPlace | BlockedKey): string {
  const { relay, stream, id, position } = place;
  const more = "lane" in place ? { key: place.key, lane: place.lane } : {};
  const at = { relay, stream, id, position: position?.toString() ?? null, ...more };
  return Buffer.from(JSON.stringify(at)).toString("base64url");
}

/** The opposite of `placeText`; throws 400 for what is no such text. The store checks what is in it. */
export function placeOf(text: string): DeadPlace & BlockedPlace {
  try {
    const at = JSON.parse(Buffer.from(text, "base64url").toString()) as Record<string, unknown>;
    const position = at["position"] === null ? null : BigInt(at["position"] as string);
    return { ...at, position } as DeadPlace & BlockedPlace;
  } catch {
    throw new PageFailure(400, "That is no place of a page before");
  }
}
