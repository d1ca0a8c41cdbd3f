const MAX_SUBJECTS = 10_000;
const MAX_PAUSE = 1000;

interface Link {
  /** Batches until linking is tried again. */
  pause: number;
  /** How many the next failure costs. */
  next: number;
}

/**
 * Which JetStream stream keeps a subject, and whether messages may be linked there: each one taken only right behind
 * the one before. That needs a stream with no other writer at the time; one that was found to be shared is left alone
 * for a number of batches, more each time.
 */
export class StreamLinks {
  readonly #streams = new Map<string, string>();
  readonly #links = new Map<string, Link>();

  learn(subject: string, stream: string): void {
    if (this.#streams.get(subject) === stream) return;
    if (this.#streams.size >= MAX_SUBJECTS) this.#streams.clear();
    this.#streams.set(subject, stream);
  }

  streamOf(subject: string): string | undefined {
    return this.#streams.get(subject);
  }

  /** Whether a batch may be linked in these streams; counts as one. */
  allow(streams: ReadonlySet<string>): boolean {
    let allowed = true;
    for (const stream of streams) {
      const link = this.#links.get(stream);
      if (link === undefined || link.pause === 0) continue;
      link.pause--;
      allowed = false;
    }
    return allowed;
  }

  /** Something came between two linked messages, or the first of them was refused. */
  broke(subject: string): void {
    const stream = this.#streams.get(subject);
    if (stream === undefined) return;
    const link = this.#links.get(stream) ?? { pause: 0, next: 10 };
    if (link.pause > 0) return;
    this.#links.set(stream, { pause: link.next, next: Math.min(link.next * 2, MAX_PAUSE) });
  }
}
