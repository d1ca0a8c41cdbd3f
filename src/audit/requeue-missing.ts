import type { Message } from "../core/message.ts";
import type { Publisher, PublishResult } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { replayHeaders } from "../core/replay-header.ts";
import type { RequeueReport } from "./audit-report.ts";

/** How long the target has for a batch. */
const ANSWER_MS = 60_000;

/**
 * Sends messages again as they are, under their ids and positions, in the order given within a key. Once one of a key was
 * refused, no later one of it is sent. Once the target is out, nothing more is sent. What was sent twice by this, the
 * receipts of the consumer drop.
 */
export class RequeueMissing {
  readonly report: RequeueReport = { sent: 0, failed: 0, error: null };
  readonly #publisher: Publisher;
  readonly #signal: AbortSignal | undefined;
  readonly #startedAt = new Date().toISOString();
  readonly #refused = new Set<string>();
  #out = false;

  constructor(publisher: Publisher, signal: AbortSignal | undefined) {
    this.#publisher = publisher;
    this.#signal = signal;
  }

  /** Which of them were sent. */
  async send(messages: readonly Message[]): Promise<ReadonlySet<string>> {
    const sent = new Set<string>();
    for (const round of this.#publisher.keepsKeyOrder ? [messages] : rounds(messages)) {
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
    const deadline = AbortSignal.timeout(ANSWER_MS);
    const signal = this.#signal === undefined ? deadline : AbortSignal.any([this.#signal, deadline]);
    try {
      return await this.#publisher.publish(
        messages.map((message) => this.#marked(message)),
        signal,
        {
          kind: "retry",
          mayBegin: () => !signal.aborted,
        },
      );
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

function keyOf({ stream, key, id }: Message): string {
  return JSON.stringify(key === null ? [id] : [stream, key]);
}
