import { describe, expect, it } from "vitest";
import type { Claim, Outcome, Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { announceDead } from "../../../src/relay/dead-letters.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import { relaySettings } from "../../../src/relay/relay-options.ts";
import { claimOf, message } from "./sample-claim.ts";

const DEAD: Outcome = { status: "dead", error: "Error: no", attempts: 3, block: true };
const PUBLISHED: Outcome = { status: "published" };

async function moveToDeadLetters(
  answer: ((sent: readonly Message[]) => readonly PublishResult[]) | undefined,
  claim?: Claim,
) {
  const sent: Message[] = [];
  const events: RelayEvent[] = [];
  const deadLetters: Publisher = {
    keepsKeyOrder: true,
    publish: async (messages) => {
      sent.push(...messages);
      return answer?.(messages) ?? [];
    },
  };
  const settings = relaySettings({
    store: { queue: { join: () => Promise.reject(new Error("no process joins")) } } as never,
    name: "to-kafka",
    publisher: deadLetters,
    ...(answer === undefined ? {} : { deadLetters }),
    backoff: { baseMs: 1000, maxMs: 1000 },
    onEvent: (event) => void events.push(event),
  });
  const outcomes: Outcome[] = [PUBLISHED, DEAD];
  await announceDead(claim ?? claimOf([message(1), message(2)]), outcomes, settings, {
    signal: new AbortController().signal,
    mayBegin: () => true,
  });
  return { outcomes, sent, events };
}

describe("dead letters of a relay", () => {
  it("are only announced where there is no target for them", async () => {
    const { outcomes, sent, events } = await moveToDeadLetters(undefined);
    expect([outcomes, sent]).toEqual([[PUBLISHED, DEAD], []]);
    expect(events).toMatchObject([{ type: "dead", relay: "to-kafka", id: "m-2", attempts: 3, error: "Error: no" }]);
  });

  it("are sent with all their errors in headers before they are dead", async () => {
    const errors = [{ at: "2026-01-01T00:00:00.000Z", error: "Error: first" }];
    const claim = claimOf([message(1), message(2)], { attempts: [0, 2], errors: [[], errors] });
    const { outcomes, sent, events } = await moveToDeadLetters(
      (all) => all.map(() => ({ status: "published" })),
      claim,
    );
    expect(outcomes).toEqual([PUBLISHED, DEAD]);
    expect(sent).toMatchObject([{ id: "m-2", position: 2n, body: "{}", stream: "orders" }]);
    expect(sent[0]?.headers).toMatchObject({
      "dead-error": "Error: no",
      "dead-attempts": "3",
      "dead-by": "to-kafka",
      "dead-errors": JSON.stringify(errors),
    });
    expect(events.map(({ type }) => type)).toEqual(["dead"]);
  });

  it.each<[string, () => readonly PublishResult[]]>([
    ["is out", () => [{ status: "unavailable", error: new Error("refused") }]],
    ["fails", () => [{ status: "failed", error: new Error("refused") }]],
    [
      "throws",
      () => {
        throw new Error("refused");
      },
    ],
    ["gives the wrong number of answers", () => []],
  ])("wait for another attempt while their target %s", async (_, answer) => {
    const { outcomes, events } = await moveToDeadLetters(answer);
    expect(outcomes[1]).toMatchObject({ status: "retry", attempts: 3 });
    expect(outcomes[1]).toMatchObject({ error: expect.stringContaining("could not be sent") as string });
    expect(events.map(({ type }) => type)).toEqual(["retry"]);
  });

  it("do not wait for their target when they have killed their process", async () => {
    const claim = claimOf([message(1), message(2)], { alone: true, crashes: 3 });
    const { outcomes, events } = await moveToDeadLetters(
      () => [{ status: "unavailable", error: new Error("refused") }],
      claim,
    );
    expect(outcomes[1]).toMatchObject({ status: "dead", error: expect.stringContaining("refused") as string });
    expect(events.map(({ type }) => type)).toEqual(["dead"]);
  });

  it("are dead here alone when their target will never take them", async () => {
    const { outcomes } = await moveToDeadLetters(() => [{ status: "rejected", error: new Error("too large") }]);
    expect(outcomes[1]).toMatchObject({ status: "dead", error: expect.stringContaining("too large") as string });
  });
});
