import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import type { Numbered } from "./outbox-database.ts";

export interface Sent extends Numbered {
  id: string;
  position: bigint;
  /** Monotonic ms. */
  at: number;
}

const PUBLISHED: PublishResult = { status: "published" };

/** Keeps what went out, in order, and fails as it is told. */
export class RecordingPublisher implements Publisher {
  readonly keepsKeyOrder: boolean = true;
  readonly sent: Sent[] = [];
  calls = 0;
  /** Undefined: published. */
  rule: (message: Numbered, whole: Message) => PublishResult | undefined = () => undefined;
  /** Before each batch; may throw. */
  before: (messages: readonly Message[], signal: AbortSignal) => Promise<void> | void = () => undefined;

  async publish(messages: readonly Message[], signal: AbortSignal): Promise<PublishResult[]> {
    this.calls++;
    await this.before(messages, signal);
    const held = new Set<string>();
    return messages.map((message): PublishResult => {
      const numbered = numberedOf(message);
      if (message.key !== null && held.has(message.key)) return { status: "unavailable" };
      const result = this.rule(numbered, message) ?? PUBLISHED;
      if (result.status === "published")
        this.sent.push({ ...numbered, id: message.id, position: message.position, at: performance.now() });
      else if (message.key !== null) held.add(message.key);
      return result;
    });
  }

  /** The numbers of a key in the order of their first publish. */
  firsts(key: string): number[] {
    return firstsOf(this.sent, key);
  }
}

export function numberedOf(message: Message): Numbered {
  return JSON.parse(String(message.body)) as Numbered;
}

export function firstsOf(sent: readonly Numbered[], key: string): number[] {
  return [...new Set(sent.filter((message) => message.key === key).map(({ n }) => n))];
}

export function upTo(count: number, from = 1): number[] {
  return Array.from({ length: count }, (_, i) => from + i);
}
