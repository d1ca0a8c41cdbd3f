import type { Outcome } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import type { MongoClaim, StreamEnd } from "./claims.ts";
import { deathOf, KEPT_ERRORS } from "./dead-letters.ts";
import type { Document } from "./mongodb-client.ts";
import type { StoredMessage } from "./mongodb-document.ts";

/** A settled document has no lease; its token stays, to tell a repeated settle from a lost lease. */
const RELEASED = { lease_owner: null, lease_until: null };

interface Waiter {
  resolve: () => void;
  reject: (error: unknown) => void;
}

/** What the next settle will write, gathered from the outcomes reported since the last one. */
export class SettleBatch {
  readonly waiters: Waiter[] = [];
  readonly drained: Set<BlockedKey> = new Set();
  readonly touched: Set<BlockedKey> = new Set();
  /** All documents, and the tokens they were claimed with. */
  readonly ids: unknown[] = [];
  readonly tokens: Set<string> = new Set();
  /** What came by the change stream gets its token only now: published ones with their settle, others with a late claim. */
  readonly token: string = uuidv7();
  readonly streamed: unknown[] = [];
  readonly late: unknown[] = [];
  /** Where the stream stands after the claims that are settled whole. */
  readonly streamEnds: StreamEnd[] = [];
  written = false;
  readonly #published: unknown[] = [];
  readonly #waiting: { new: unknown[]; failed: unknown[] } = { new: [], failed: [] };
  readonly #failed: Document[] = [];
  readonly #dead: unknown[] = [];

  get published(): number {
    return this.#published.length + this.streamed.length;
  }

  get dead(): readonly unknown[] {
    return this.#dead;
  }

  /** Takes effect on the keys at once. `now` is monotonic, `serverNow` the server's time. */
  record(claim: MongoClaim, outcomes: readonly Outcome[], keys: BlockedKeys, now: number, serverNow: number): void {
    const token = claim.streamed === undefined ? claim.token : this.token;
    this.tokens.add(token);
    if (claim.streamed !== undefined && outcomes.length === claim.messages.length) this.streamEnds.push(claim.streamed);
    for (const [i, outcome] of outcomes.entries()) {
      const message = claim.messages[i]!;
      const { _id } = message.document;
      if (outcome.status === "running") {
        this.#recordRunning(claim, i, keys);
        continue;
      }
      this.ids.push(_id);
      if (claim.streamed !== undefined) (outcome.status === "published" ? this.streamed : this.late).push(_id);
      if (claim.streamed !== undefined && outcome.status === "published") continue;
      this.#recordOne(message, outcome, token, claim.entries[i], keys, now, serverNow);
    }
    const detached = new Set([...claim.detached.values()].flatMap((own) => own.keys));
    for (const key of claim.keys) {
      if (detached.has(key)) continue;
      this.drained.add(key);
      this.#touch(key);
    }
  }

  /** It stays claimed while its attempt goes on; what came by the change stream is claimed for that. */
  #recordRunning(claim: MongoClaim, index: number, keys: BlockedKeys): void {
    const message = claim.messages[index]!;
    const own = claim.detached.get(index);
    if (claim.streamed !== undefined) {
      this.late.push(message.document["_id"]);
      if (own !== undefined) own.token = this.token;
    }
    const key = claim.entries[index] ?? keys.ensure(message);
    this.#touch(key);
    if (claim.kind === "new") keys.park(key, 1);
  }

  #recordOne(
    message: StoredMessage,
    outcome: Exclude<Outcome, { status: "running" }>,
    token: string,
    drained: BlockedKey | undefined,
    keys: BlockedKeys,
    now: number,
    serverNow: number,
  ): void {
    const { _id } = message.document;
    const parkedAlready = drained !== undefined;
    if (outcome.status === "published") {
      this.#published.push(_id);
      if (parkedAlready) {
        keys.park(drained, -1);
        keys.routeBack(drained, now);
      }
      return;
    }
    if (outcome.status === "dead") {
      // Until it is written it may come again, so nothing of its key may go ahead.
      const key = drained ?? keys.ensure(message);
      if (parkedAlready) keys.park(drained, -1);
      key.held ||= outcome.block;
      key.dueAt = now;
      this.#touch(key);
      this.#dead.push(_id);
      const attempts = message.earlierAttempts + outcome.attempts;
      const update = deathOf(describeError(outcome.error), uuidv7(), new Date(serverNow), outcome.block);
      this.#failed.push(this.#one(_id, token, { ...update, $set: { ...(update["$set"] as Document), attempts } }));
      return;
    }
    const key = drained ?? keys.ensure(message);
    this.#touch(key);
    if (!parkedAlready) keys.park(key, 1);
    if (outcome.status === "waiting") {
      this.#waiting[message.failures > 0 ? "failed" : "new"].push(_id);
      return;
    }
    key.dueAt = now + outcome.delayMs;
    if (outcome.status === "postponed") {
      if (outcome.route !== undefined) keys.routeOut(key, outcome.route, key.dueAt);
      const status = message.failures > 0 ? "failed" : "new";
      const $set = { ...RELEASED, status, waits: "parked", last_error: describeError(outcome.error) };
      this.#failed.push(this.#one(_id, token, { $set, $unset: { alone: 1, crashes: 1 }, $inc: { attempts: -1 } }));
      return;
    }
    keys.leaveRoute(key);
    const error = { $literal: describeError(outcome.error) };
    const before = { $cond: [{ $isArray: "$errors" }, "$errors", []] };
    const errors = { $slice: [{ $concatArrays: [before, [{ at: "$$NOW", error }]] }, -KEPT_ERRORS] };
    this.#failed.push(
      this.#one(_id, token, [
        {
          $set: {
            ...RELEASED,
            status: "failed",
            waits: "parked",
            next_retry_at: { $add: ["$$NOW", outcome.delayMs] },
            attempts: message.earlierAttempts + outcome.attempts,
            last_error: error,
            errors,
          },
        },
        { $unset: ["alone", "crashes"] },
      ]),
    );
  }

  /** The writes, each fenced by token: whoever took a document back has taken the token off it. */
  operations(): Document[] {
    const those = (ids: readonly unknown[]) => ({
      _id: { $in: ids },
      lease_token: { $in: [...this.tokens] },
      status: "processing",
    });
    const many = (ids: readonly unknown[], update: Document) =>
      ids.length === 0 ? [] : [{ updateMany: { filter: those(ids), update } }];
    const waiting = (ids: readonly unknown[], status: string) =>
      many(ids, {
        $set: { ...RELEASED, status, waits: "parked" },
        $unset: { alone: 1, crashes: 1 },
        $inc: { attempts: -1 },
      });
    return [
      ...many(this.#published, {
        $set: { ...RELEASED, status: "done" },
        $unset: { alone: 1, crashes: 1 },
        $currentDate: { published_at: true },
      }),
      ...this.#failed,
      ...waiting(this.#waiting.failed, "failed"),
      ...waiting(this.#waiting.new, "new"),
    ];
  }

  #one(_id: unknown, lease_token: string, update: Document | Document[]): Document {
    return { updateOne: { filter: { _id, lease_token, status: "processing" }, update } };
  }

  #touch(key: BlockedKey): void {
    if (this.touched.has(key)) return;
    this.touched.add(key);
    key.writes++;
  }
}
