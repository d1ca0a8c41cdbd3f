const QUIET_MS = 60_000;
/** Routes may be many. */
const MAX_KEYS = 1000;

interface Repeat {
  readonly shownAt: number;
  missed: number;
  /** Whether its end is still to be told. */
  isOpen: boolean;
}

/** Lets through the first of what comes again and again, and one a minute after it. */
export class Repeats {
  readonly #byKey = new Map<string, Repeat>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** How many were held back before this one, which is to be shown; undefined: it is held back as well. */
  missedBefore(key: string): number | undefined {
    const now = this.#now();
    const last = this.#byKey.get(key);
    if (last !== undefined && now - last.shownAt < QUIET_MS) {
      last.missed++;
      return undefined;
    }
    if (last === undefined && this.#byKey.size >= MAX_KEYS) this.#byKey.delete(this.#byKey.keys().next().value!);
    this.#byKey.delete(key);
    this.#byKey.set(key, { shownAt: now, missed: 0, isOpen: true });
    return last?.missed ?? 0;
  }

  /** Whether any was shown since the last end of it. */
  wasShown(key: string): boolean {
    const last = this.#byKey.get(key);
    const shown = last?.isOpen ?? false;
    if (last !== undefined) last.isOpen = false;
    return shown;
  }
}
