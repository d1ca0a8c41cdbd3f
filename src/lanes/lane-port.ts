import type { AttemptError, Outcome } from "../core/contracts.ts";
import type { Message } from "../core/message.ts";
import type { BlockedKey } from "./blocked-keys.ts";

/**
 * What the engine asks of a store. The engine decides who owns what, what waits and what is settled; a store keeps
 * progress, fences every write and has the clock. All times in answers are relative, in ms.
 *
 * Every write carries a fence: the owner, an epoch that rises whenever lanes change hands or are loaded anew, and a
 * random token, because epochs come again after a failover that lost the last ones. Under a fence that no longer holds,
 * nothing is changed.
 */

/** Lanes with one progress and one fence. The store changes it as it writes; the engine reads these fields only. */
export interface Part {
  readonly lanes: readonly number[];
  /** Owners that died since these lanes last made progress. It goes with the lanes when they change hands. */
  readonly crashes: number;
}

/** A message as the store knows it. */
export interface Stored extends Message {
  readonly lane: number;
  /** The name that the store gives it. As texts, the names of two messages differ. */
  readonly ref: unknown;
  /** No message of its key waits behind it: the key cannot be stored. */
  readonly keyless?: boolean;
}

/** What a process sees of its relay. */
export interface View {
  /** The name under which this process holds its lanes. */
  readonly self: string;
  readonly paused: boolean;
  /** Processes whose leases run, by the database's clock. */
  readonly members: readonly string[];
  /** One of them is to have all lanes, and the others stand by. */
  readonly together?: boolean;
  readonly lanes: readonly LaneView[];
  /** Dead letters of this process's lanes have commands to be carried out. */
  readonly commands: boolean;
  /** Until the next scheduled message is due; null: there is none. */
  readonly scheduledInMs: number | null;
  /** There is more than this process has loaded, or less: it has to enter again. */
  readonly outdated: boolean;
}

export interface LaneView {
  readonly lane: number;
  readonly owner: string | null;
  /** How long the lane has been free; negative while a lease runs. */
  readonly freeMs: number;
}

/** The stored half of a blocked key. */
export interface StoredKey {
  readonly lane: number;
  readonly stream: string;
  /** Null for a message that needs no order; then `single` is its reference. */
  readonly key: string | null;
  readonly single: unknown;
  /** The first message that waits, where the store keeps that with the key. */
  readonly head: unknown;
  readonly attempts: number;
  readonly lastError: string | undefined;
  readonly parked: number;
  readonly dueInMs: number;
  /** A dead letter holds it. */
  readonly held: boolean;
}

export interface Tended {
  readonly view: View;
  /** The lease was renewed for every part; undefined: it need not be yet, and every part is as this process has left it. */
  readonly renewed: boolean | undefined;
  /** What could not be asked after that: the view is not complete. */
  readonly failure?: { readonly error: unknown };
}

export interface Entered<P> {
  readonly parts: readonly P[];
  readonly keys: Iterable<StoredKey>;
  /** Messages under way that are still parked in lanes of this process, by their references as texts. */
  readonly ongoing: ReadonlySet<string>;
}

/**
 * Whether a message that is claimed by itself is marked, so that it is to blame if the process dies: any, only one that owners
 * have died with before ("known"), or none.
 */
export type Blame = "any" | "known" | "none";

export interface Limit {
  readonly messages: number;
  readonly bytes: number;
}

/**
 * Why there is no page. `nothing`: all that was committed before the call has been handed out, unless something is still
 * in hand. `lost`: the fence did not hold. `slow`: the server gave up, so less is to be asked for. `untidy`: `tidy` comes
 * first.
 */
export type NoPage = "nothing" | "lost" | "slow" | "untidy";

export interface NewPage<P, S, M> {
  readonly part: P;
  /** May be empty: then it is settled without being handed out. */
  readonly messages: readonly S[];
  /** Failed attempts of each; undefined: none has any. */
  readonly attempts: readonly number[] | undefined;
  /** Of a message that is tried alone: how many owners died with it in hand. */
  readonly crashes: number;
  /** Comes back with the settlement. */
  readonly mark: M;
}

export interface ParkedPage<S> {
  readonly messages: readonly S[];
  /** The key of each message. */
  readonly keys: readonly BlockedKey[];
  readonly attempts: readonly number[];
  readonly errors: readonly (readonly AttemptError[])[] | undefined;
  readonly crashes: number;
  /** Keys whose first message is not due yet, or cannot be had at this moment. */
  readonly later: ReadonlyMap<BlockedKey, number>;
  /** Keys with messages that can never be read and are dead by now: how many of each. */
  readonly died: ReadonlyMap<BlockedKey, number>;
  /** False: a limit was reached, so a key that is missing here may still have parked messages. */
  readonly complete: boolean;
}

/** The outcome of a message that was neither published nor declared dead. */
export interface ParkedMessage<S> {
  readonly message: S;
  readonly key: BlockedKey;
  readonly outcome: Exclude<Outcome, { status: "published" | "dead" }>;
}

export interface DeadMessage<S> {
  readonly message: S;
  readonly key: BlockedKey;
  readonly attempts: number;
  readonly error: string;
  readonly block: boolean;
}

/** A parked message that went out, or died. */
export interface UnparkedMessage<S> {
  readonly message: S;
  readonly published: boolean;
  readonly attempts: number;
  readonly lastError: string | undefined;
}

export interface SettledPage<S, M> {
  readonly mark: M;
  /** The leading messages that are settled. */
  readonly messages: readonly S[];
  /** Messages that went out at the first attempt. */
  readonly published: readonly S[];
  /** False: some are left, for the next owner. */
  readonly complete: boolean;
}

/** Everything reported for one part since the last write. No message stands in more than one of the lists. */
export interface Settlement<S, M> {
  /** The same when the write is repeated, and never given twice otherwise. */
  readonly token: string;
  /** New pages, in the order in which they were read. */
  readonly pages: readonly SettledPage<S, M>[];
  /** All that went out, of new pages and parked ones. */
  readonly published: number;
  /** New messages that wait from now on. */
  readonly park: readonly ParkedMessage<S>[];
  /** Parked messages that go on waiting after an attempt. */
  readonly retried: readonly ParkedMessage<S>[];
  readonly unpark: readonly UnparkedMessage<S>[];
  readonly dead: readonly DeadMessage<S>[];
  /** Keys as they are from now on, with the errors that are not written yet. */
  readonly block: readonly (StoredKey & { readonly errors: readonly string[] })[];
  readonly unblock: readonly StoredKey[];
  /** Progress proves that nothing here kills its owner. */
  readonly clearCrashes: boolean;
  /** The next page may be opened in the same write, should the store be able to. */
  readonly mayOpenNext: boolean;
  /** Whether another settlement is waiting to be written at this moment. */
  readonly isFollowed: () => boolean;
}

export interface LanePort<P extends Part, S extends Stored, M> {
  /** How many failed keys one claim may hold. */
  readonly keysPerClaim: number;
  /** Nothing may be claimed while scheduled messages come in. */
  readonly promotesAlone: boolean;
  /** New messages wake the relay at this moment. */
  readonly isTold: boolean;
  /** Finds or creates the relay; several processes may do so at once. Refuses a database that it cannot work on. */
  open(): Promise<void>;
  /**
   * Every load of state. ATOMIC and DURABLE: this process becomes a member, or stays one, and the epoch of its lanes
   * rises, so that nothing it sent before takes effect afterwards; where that is a matter of time, it waits first. Then,
   * as the only owner, it takes back what earlier owners had claimed, but for `ongoing`: messages of attempts that are under
   * way. The only call that makes a member. Renews the lease.
   */
  enter(ongoing: readonly S[]): Promise<Entered<P>>;
  /**
   * Looks at the members and lanes of the relay and renews the lease, ATOMIC for each part, by the database's clock. A
   * lease that ran out is renewed too, unless another process took the lanes. One that still runs for long may be left
   * alone. Never makes a member. `renewed` is false when another process owns a part by now, or when its progress is
   * not what this process has written. Throws before it writes where nothing may be written.
   */
  tend(parts: readonly P[], inHand: readonly S[]): Promise<Tended>;
  /** ATOMIC for each lane: free, or its lease over by the database's clock. Counts a death unless the lane was given. */
  take(lanes: readonly number[]): Promise<void>;
  /** Nothing new is in hand. ATOMIC: the epoch rises, progress and crash counts go with the lanes. "all" ends the membership. */
  give(parts: readonly P[], lanes: readonly number[] | "all"): Promise<void>;
  /**
   * The next new messages, those of blocked keys included, in order within a key and none of a key left out. When it
   * resolves they are durably committed, no other process may have them while the fence holds, and that is durable too.
   * A single message is marked before as `blame` says, durably, so that the next owner knows what this one had in hand.
   */
  readNew(parts: readonly P[], limit: Limit, blame: Blame): Promise<NewPage<P, S, M> | NoPage>;
  /** The same promises for the first messages of these keys; never past one that is not due or cannot be read. */
  readParked(
    part: P,
    keys: readonly BlockedKey[],
    limit: Limit,
    blame: Blame,
  ): Promise<ParkedPage<S> | Exclude<NoPage, "untidy">>;
  /**
   * Marks the message that is tried alone, or takes the mark off and keeps its count of deaths. DURABLE; false: lost.
   */
  suspect(part: P, message: S, inHand: boolean): Promise<boolean>;
  /**
   * ALL OR NOTHING, or in pieces that each can be repeated. True when it is written, also by an earlier call with the
   * same token whose answer was lost; false: lost. Need not be durable at once, but a later write must fail if a crash
   * lost this one.
   */
  write(part: P, settlement: Settlement<S, M>): Promise<boolean>;
  /** Scheduled messages whose time has come become new ones, in the order of their times. Time to the next; null: none. */
  promote(parts: readonly P[]): Promise<number | null>;
  /** Nothing new is in hand. Carries out commands on dead letters of these lanes; each stays until it is known to be done. */
  carryOut(parts: readonly P[]): Promise<void>;
  /** Nothing new is in hand. Puts the store's own progress in order, after `untidy`. */
  tidy(parts: readonly P[]): Promise<void>;
  /** The same call may work in a moment: the connection broke, or the server is about to be back. */
  isPassing(error: unknown): boolean;
  /** The server cancelled the statement and changed nothing: ask for less at a time. */
  isSlow(error: unknown): boolean;
}
