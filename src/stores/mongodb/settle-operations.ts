import { describeError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { DeadMessage, ParkedMessage, Settlement } from "../../lanes/lane-port.ts";
import type { StreamEnd } from "./claims.ts";
import { deathOf, KEPT_ERRORS } from "./dead-letters.ts";
import type { Document } from "./mongodb-client.ts";
import type { StoredMessage } from "./mongodb-document.ts";

export type MongoSettlement = Settlement<StoredMessage, StreamEnd | undefined>;

/** A settled document has no lease; its token stays, to tell a repeated settle from a lost lease. */
const RELEASED = { lease_owner: null, lease_until: null };
const NOT_ALONE = { alone: 1, crashes: 1 };

/** What a settlement writes: each document once, fenced by the token that it was claimed with. */
export interface SettleOperations {
  /** Of what came by the change stream and gets its token only now: published ones with their settle, others with a late claim. */
  readonly token: string;
  readonly streamed: readonly unknown[];
  readonly late: readonly StoredMessage[];
  readonly dead: readonly unknown[];
  /** All documents that are another's, or settled, unless they are written. */
  readonly ids: readonly unknown[];
  /** Made once the late claims are written: these give tokens. */
  readonly bulk: () => Document[];
  readonly tokens: () => string[];
}

export function settleOperations(settlement: MongoSettlement, serverNow: () => number): SettleOperations {
  const { token, pages, park, retried, unpark, dead } = settlement;
  const published = [
    ...pages.flatMap((page) => page.published),
    ...unpark.flatMap(({ message, published: went }) => (went ? [message] : [])),
  ];
  const waiting = [...park, ...retried];
  const settled = waiting.filter(({ outcome }) => outcome.status !== "running");
  const unclaimed = (message: StoredMessage) => message.token === undefined || message.token === token;
  const all = [...published, ...settled.map(({ message }) => message), ...dead.map(({ message }) => message)];
  const streamed = published.filter(unclaimed);
  return {
    token,
    streamed: streamed.map(({ ref }) => ref),
    late: [...waiting, ...dead].flatMap(({ message }) => (unclaimed(message) ? [message] : [])),
    dead: dead.map(({ message }) => message.ref),
    ids: all.map(({ ref }) => ref),
    tokens: () => [...new Set(all.map((message) => message.token ?? token))],
    bulk: () => {
      const claimed = published.filter((message) => !unclaimed(message));
      const quiet = settled.filter(({ outcome }) => outcome.status === "waiting");
      const failed = quiet.filter(({ message }) => message.failures > 0);
      const fresh = quiet.filter(({ message }) => message.failures === 0);
      return [
        ...many(claimed, {
          $set: { ...RELEASED, status: "done" },
          $unset: NOT_ALONE,
          $inc: { attempts: 1 },
          $currentDate: { published_at: true },
        }),
        ...settled.flatMap(waitingOperation),
        ...dead.map((death) => deathOperation(death, new Date(serverNow()))),
        ...many(
          failed.map(({ message }) => message),
          parkedAs("failed"),
        ),
        ...many(
          fresh.map(({ message }) => message),
          parkedAs("new"),
        ),
      ];
    },
  };
}

const parkedAs = (status: "new" | "failed"): Document => ({
  $set: { ...RELEASED, status, waits: "parked" },
  $unset: NOT_ALONE,
});

/** A message that failed, or whose target is out. */
function waitingOperation({ message, outcome }: ParkedMessage<StoredMessage>): Document[] {
  if (outcome.status === "postponed") {
    const { $set, $unset } = parkedAs(message.failures > 0 ? "failed" : "new");
    return [one(message, { $set: { ...($set as Document), last_error: describeError(outcome.error) }, $unset })];
  }
  if (outcome.status !== "retry") return [];
  const error = { $literal: describeError(outcome.error) };
  const before = { $cond: [{ $isArray: "$errors" }, "$errors", []] };
  const $set = {
    ...RELEASED,
    status: "failed",
    waits: "parked",
    next_retry_at: { $add: ["$$NOW", outcome.delayMs] },
    attempts: message.earlierAttempts + outcome.attempts,
    last_error: error,
    errors: { $slice: [{ $concatArrays: [before, [{ at: "$$NOW", error }]] }, -KEPT_ERRORS] },
  };
  return [one(message, [{ $set }, { $unset: Object.keys(NOT_ALONE) }])];
}

function deathOperation({ message, attempts, error, block }: DeadMessage<StoredMessage>, at: Date): Document {
  const death = deathOf(error, uuidv7(), at, block);
  const $set = { ...(death["$set"] as Document), attempts: message.earlierAttempts + attempts };
  return one(message, { ...death, $set });
}

function one({ ref, token }: StoredMessage, update: Document | Document[]): Document {
  return { updateOne: { filter: { _id: ref, lease_token: token, status: "processing" }, update } };
}

function many(messages: readonly StoredMessage[], update: Document): Document[] {
  if (messages.length === 0) return [];
  const tokens = [...new Set(messages.map(({ token }) => token))];
  const filter = { _id: { $in: messages.map(({ ref }) => ref) }, lease_token: { $in: tokens }, status: "processing" };
  return [{ updateMany: { filter, update } }];
}
