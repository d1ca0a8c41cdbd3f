const ACTOR = "txbox.actor";

/** The name that was given last in this browser; "" when there is none. */
export function rememberedActor(): string {
  try {
    return localStorage.getItem(ACTOR) ?? "";
  } catch {
    return "";
  }
}

export function rememberActor(actor: string): void {
  try {
    localStorage.setItem(ACTOR, actor);
  } catch {
    // A browser that keeps nothing asks again next time.
  }
}
