import { hideSecrets } from "../core/hide-secrets.ts";

const HIDDEN = "…";

/** Takes passwords out of what is printed about a failure, also in texts of drivers, brokers and configurations. */
export class Secrets {
  readonly #known = new Set<string>();

  add(secret: string | undefined): void {
    // What is shorter would be taken out of the middle of words.
    if (secret !== undefined && secret.length >= 4) this.#known.add(secret);
  }

  hide(text: string): string {
    let shown = text;
    for (const secret of [...this.#known].toSorted((a, b) => b.length - a.length)) {
      shown = shown.replaceAll(secret, HIDDEN);
    }
    return hideSecrets(shown);
  }
}
