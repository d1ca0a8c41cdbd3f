import { backoffMs } from "../core/backoff.ts";
import type { Claim, Outcome, PublishResult } from "../core/contracts.ts";
import { deadHeaders } from "../core/dead-letter.ts";
import { describeError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import { readableMessage } from "../core/readable-message.ts";
import type { LeaseSignal } from "./lease-signal.ts";
import type { RelaySettings } from "./relay-options.ts";

/**
 * Announces what became dead. With a target for dead letters, each is sent there first: while the target does not take
 * it, the message is not dead yet but waits for another attempt. One that the target will never take is dead here
 * alone, and so is one that has killed its process: another attempt would kill the next process.
 */
export async function announceDead(
  claim: Claim,
  outcomes: Outcome[],
  settings: RelaySettings,
  lease: Pick<LeaseSignal, "signal" | "mayBegin">,
): Promise<void> {
  const dead = outcomes.flatMap((outcome, i) => (outcome.status === "dead" ? [{ i, outcome }] : []));
  if (dead.length === 0) return;
  const copies = dead.map(({ i, outcome: { error, attempts } }): Message => {
    const message = readableMessage(claim.messages[i]!);
    const why = deadHeaders(settings.name, error, attempts, claim.errors?.[i]);
    return { ...message, headers: { ...message.headers, ...why } };
  });
  const results = await send(copies, settings, lease);
  for (const [n, { i, outcome }] of dead.entries()) {
    const { id, position } = claim.messages[i]!;
    const { attempts, error } = outcome;
    const result = results?.[n];
    const notSent = result !== undefined && result.status !== "published" && result.status !== "rejected";
    const about = { relay: settings.name, id, position, attempts };
    if (notSent && claim.crashes === 0) {
      const why = `${error}; its dead letter could not be sent: ${describeError(reasonOf(result) ?? "not tried")}`;
      const delayMs = backoffMs(attempts, settings.backoff);
      outcomes[i] = { status: "retry", error: why, attempts, delayMs };
      settings.emit({ type: "retry", ...about, delayMs, error: why });
    } else {
      const refused = notSent || result?.status === "rejected";
      const note = refused ? `; its dead letter was refused: ${describeError(reasonOf(result))}` : "";
      outcomes[i] = { ...outcome, error: error + note };
      settings.emit({ type: "dead", ...about, error: error + note });
    }
  }
}

function reasonOf(result: PublishResult): unknown {
  return "error" in result ? result.error : undefined;
}

/** Undefined without a target for dead letters. */
async function send(
  copies: readonly Message[],
  { deadLetters }: RelaySettings,
  { signal, mayBegin }: Pick<LeaseSignal, "signal" | "mayBegin">,
): Promise<readonly PublishResult[] | undefined> {
  if (deadLetters === undefined) return undefined;
  try {
    const results = await deadLetters.publish(copies, signal, { kind: "retry", mayBegin });
    if (results.length === copies.length) return results;
    throw new Error(`the publisher of dead letters returned ${results.length} results for ${copies.length} messages`);
  } catch (error) {
    return copies.map(() => ({ status: "unavailable", error }));
  }
}
