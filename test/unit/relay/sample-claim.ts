import type { Claim } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";

export function message(n: number, key: string | null = "k"): Message {
  return {
    id: `m-${n}`,
    position: BigInt(n),
    stream: "orders",
    type: "changed",
    key,
    aggregateType: null,
    aggregateId: null,
    body: "{}",
    headers: {},
    createdAt: new Date(0),
  };
}

export function claimOf(messages: readonly Message[], more: Partial<Claim> = {}): Claim {
  return { kind: "new", messages, attempts: undefined, alone: false, crashes: 0, ...more };
}
