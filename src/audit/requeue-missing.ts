import type { Message } from "../core/message.ts";
import type { Publisher, PublishResult } from "../core/contracts.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import { Pace } from "../core/pace.ts";
import { replayHeaders } from "../core/replay-header.ts";
import { ABORTED, LATE, settledWithin } from "../core/settled-within.ts";
import type { RequeueReport } from "./audit-report.ts";

/** How long the target has for a batch. */
const ANSWER_MS = 60_000;
/** A publisher that was told to end its batch has this long for it. */
const GOODBYE_MS = 5000;
const BATCH = 100;

/**
 * Sends messages again as they are, under their ids and positions, in the order given within a key. Once one of a key was
 * refused, no later one of it is sent. Once the target is out, nothing more is sent. What was sent twice by this, the
 * receipts of the consumer drop.
 */
export class RequeueMissing {
  readonly report: RequeueReport = { sent: 0, failed: 0, error: null };
  readonly #publisher: Publisher;
  readonly #signal: AbortSignal | undefined;
  readonly #pace: Pace;
  readonly #startedAt = new Date().toISOString();
  readonly #refused = new Set<string>();
  #out = false;

  constructor(publisher: Publisher, rate: number, signal: AbortSignal | undefined) {
    this.#publisher = publisher;
    this.#pace = new Pace(rate, BATCH);
    this.#signal = signal;
  }

  /** Which of them were sent. */
  async send(messages: readonly Message[]): Promise<ReadonlySet<string>> {
    const sent = new Set<string>();
    const all = this.#publisher.keepsKeyOrder ? [messages] : rounds(messages);
    for (const round of all.flatMap((of) => parts(of, this.#pace.most))) {
      const open = round.filter((message) => !this.#out && !this.#refused.has(keyOf(message)));
      this.report.failed += round.length - open.length;
      const results = open.length === 0 ? [] : await this.#publish(open);
      for (const [i, message] of open.entries()) {
        const result = results[i] ?? { status: "held" };
        if (result.status === "published") {
          sent.add(message.id);
          this.report.sent++;
        } else this.#refuse(message, result);
      }
    }
    return sent;
  }

  async #publish(messages: readonly Message[]): Promise<readonly PublishResult[]> {
    await this.#pace.turn(messages.length, this.#signal);
    const deadline = AbortSignal.timeout(ANSWER_MS);
    const signal = this.#signal === undefined ? deadline : AbortSignal.any([this.#signal, deadline]);
    const marked = messages.map((message) => this.#marked(message));
    try {
      const answer = this.#publisher.publish(marked, signal, { kind: "retry", mayBegin: () => !signal.aborted });
      let results = await settledWithin(answer, ANSWER_MS, signal);
      // What is on its way is waited for, though not for ever: a publisher may ignore its signal.
      if (results === LATE || results === ABORTED) results = await settledWithin(answer, GOODBYE_MS);
      if (results !== LATE && results !== ABORTED) return results;
      throw new TxboxError("unavailable", "The publisher did not answer", { retryable: true });
    } catch (error) {
      return messages.map(() => ({ status: "unavailable", error }));
    }
  }

  #marked(message: Message): Message {
    return { ...message, headers: replayHeaders(message, this.#startedAt) };
  }

  #refuse(message: Message, result: PublishResult): void {
    this.report.failed++;
    if (message.key !== null) this.#refused.add(keyOf(message));
    if (result.status === "unavailable" && result.route === undefined) this.#out = true;
    if ("error" in result && result.error !== undefined) this.report.error = describeError(result.error);
  }
}

/** One message of a key in each, for a target that does not hold later ones back by itself. */
function rounds(messages: readonly Message[]): Message[][] {
  const all: Message[][] = [];
  const next = new Map<string, number>();
  for (const message of messages) {
    const n = message.key === null ? 0 : (next.get(keyOf(message)) ?? 0);
    next.set(keyOf(message), n + 1);
    (all[n] ??= []).push(message);
  }
  return all;
}

function parts(messages: readonly Message[], most: number): (readonly Message[])[] {
  const count = Math.ceil(messages.length / most);
  return Array.from({ length: count }, (_, i) => messages.slice(i * most, (i + 1) * most));
}

function keyOf({ stream, key, id }: Message): string {
  return JSON.stringify(key === null ? [id] : [stream, key]);
}
