import type { Clock, JoinOptions } from "../../core/contracts.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { BlockedKey } from "../../lanes/blocked-keys.ts";
import type {
  Blame,
  Entered,
  LanePort,
  Limit,
  NewPage,
  NoPage,
  ParkedPage,
  Part,
  Tended,
} from "../../lanes/lane-port.ts";
import { ClaimSource, type MessageSource } from "./claim-source.ts";
import { type StreamEnd, whileAlone } from "./claims.ts";
import { carryOutCommands, hasCommands } from "./commands.ts";
import { writeLetters } from "./dead-letters.ts";
import { findOrCreateRelay } from "./join-relay.ts";
import { Lease } from "./lease.ts";
import type { StoredMessage } from "./mongodb-document.ts";
import { isPassing, isTimeExpired } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { MongoOwnership, relayDropped, type RelayView } from "./mongodb-ownership.ts";
import { nextScheduledMs, promote } from "./schedule.ts";
import { settleOperations, type MongoSettlement, type SettleOperations } from "./settle-operations.ts";
import { claimLate, settleStreamed } from "./settle-streamed.ts";
import { StreamSource, type StreamSettings } from "./stream-source.ts";
import { takeBackOf } from "./take-back.ts";
import { takeOver } from "./take-over.ts";
import { Upkeep } from "./upkeep.ts";

export interface MongoLanePortOptions {
  tables: Tables;
  join: JoinOptions;
  clock: Clock;
  /** How long an answer of the database is waited for. */
  deadlineMs: number;
  /** New messages come by a change stream. */
  stream: StreamSettings | undefined;
}

/** All lanes of an owner: their progress is in the documents themselves. */
export interface MongoPart extends Part {
  /** The name under which the lanes are held; another one after every load, so that earlier claims are known as such. */
  readonly owner: string;
}

type Page = NewPage<MongoPart, StoredMessage, StreamEnd | undefined>;

/** Documents that are claimed one by one, with tokens, until the end of a lease. */
export class MongoLanePort implements LanePort<MongoPart, StoredMessage, StreamEnd | undefined> {
  readonly keysPerClaim: number = 100;
  readonly promotesAlone: boolean = true;
  /** By a change stream as well: what it may have left out is looked for at the pace of polling. */
  readonly isTold: boolean = false;
  readonly isPassing: (error: unknown) => boolean = isPassing;
  readonly isSlow: (error: unknown) => boolean = isTimeExpired;
  readonly #tables: Tables;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  readonly #ownership: MongoOwnership;
  readonly #lease: Lease;
  readonly #claims: ClaimSource;
  readonly #source: MessageSource;
  readonly #upkeep: Upkeep;
  /** Names under which this process may hold lanes: several, after answers that were lost. */
  #names: string[] = [];
  #streams: string[] | null = null;
  /** Pages of new messages that are handed out and not settled. */
  #pagesInHand = 0;
  /** Published, and not yet in the relay's count. */
  #uncounted = 0;
  /** Settlements whose effect is noted. */
  readonly #noted = new WeakSet<MongoSettlement>();

  constructor({ tables, join, clock, deadlineMs, stream }: MongoLanePortOptions) {
    this.#tables = tables;
    this.#options = join;
    this.#clock = clock;
    this.#ownership = new MongoOwnership(tables.relays, join);
    const lease = (this.#lease = new Lease(clock, join.leaseMs));
    this.#upkeep = new Upkeep(tables, join, clock);
    const claims = (this.#claims = new ClaimSource(tables, join.relay, lease));
    this.#source =
      stream === undefined ? claims : new StreamSource({ tables, join, clock, lease, claims, stream, deadlineMs });
  }

  async open(): Promise<void> {
    await findOrCreateRelay(this.#tables, this.#ownership, this.#options, this.#clock);
  }

  async enter(messages: readonly StoredMessage[]): Promise<Entered<MongoPart>> {
    await this.#lease.quiet();
    // Until it is known what is ready otherwise, there is nothing to go on from.
    this.#source.rescan();
    this.#pagesInHand = 0;
    const { relay, owner, unordered } = this.#options;
    const me = `${owner}#${uuidv7()}`;
    const before = this.#names;
    this.#names = [...before, me];
    const sentAt = this.#clock.monotonic();
    const view = await this.#ownership.join(me, before);
    if (view === undefined) throw relayDropped(relay);
    this.#names = [me];
    this.#streams = view.streams;
    this.#lease.note(view, me, sentAt);
    const inMs = (time: Date) => time.getTime() - this.#lease.serverNow();
    const owning = { tables: this.#tables, ownership: this.#ownership, relay, unordered, ongoing: messages, inMs };
    const { keys, ongoing, from } = await takeOver(owning, view, me);
    this.#source.restart(view, from);
    const mine = view.lanes.filter((lane) => lane.owner === me);
    const crashes = Math.max(0, ...mine.map((lane) => lane.crashes));
    const part = { owner: me, lanes: mine.map(({ lane }) => lane), crashes };
    return { parts: mine.length === 0 ? [] : [part], keys, ongoing: new Set(ongoing.map(({ _id }) => String(_id))) };
  }

  async tend(parts: readonly MongoPart[], inHand: readonly StoredMessage[]): Promise<Tended> {
    const self = this.#names.at(-1)!;
    const lanes = parts.flatMap((part) => part.lanes);
    const { relay } = this.#options;
    const sentAt = this.#clock.monotonic();
    const view = await this.#ownership.tend(self, this.#note());
    if (view === undefined) throw relayDropped(relay);
    this.#streams = view.streams;
    const renewed = this.#noteView(view, self, lanes, sentAt);
    const outdated = view.lanes.some(({ owner, lane }) => owner === self && !lanes.includes(lane));
    const at = view.at.getTime();
    const seen = {
      self,
      paused: view.paused,
      members: view.members.map(({ owner }) => owner),
      lanes: view.lanes.map(({ lane, owner, freed_at }) => {
        return { lane, owner, freeMs: owner === null ? at - freed_at.getTime() : -1 };
      }),
      commands: false,
      scheduledInMs: null,
      outdated,
    };
    // The lease is renewed, whatever becomes of the other questions.
    try {
      const more = await this.#lookFurther(view, lanes);
      await this.#upkeep.renewDocuments(inHand, self, this.#lease.until);
      return { view: { ...seen, ...more, outdated: outdated || more.outdated }, renewed };
    } catch (error) {
      return { view: seen, renewed, failure: { error } };
    }
  }

  async #lookFurther(view: RelayView, lanes: readonly number[]) {
    const { relay } = this.#options;
    return {
      outdated: await this.#upkeep.hasForgotten(lanes, view),
      commands: await hasCommands(this.#tables, { relay, lanes }),
      scheduledInMs: (await nextScheduledMs(this.#tables, { lanes, streams: view.streams })) ?? null,
    };
  }

  async take(lanes: readonly number[]): Promise<void> {
    await this.#ownership.take(this.#names.at(-1)!, lanes);
  }

  async give(parts: readonly MongoPart[], lanes: readonly number[] | "all"): Promise<void> {
    if (lanes !== "all") {
      await this.#ownership.give(this.#names.at(-1)!, lanes, this.#note());
      return;
    }
    await this.#lease.quiet();
    const [part] = parts;
    if (part !== undefined && this.#uncounted > 0) await this.#renew(part);
    const note = this.#note();
    this.#source.close();
    const { relay, unordered } = this.#options;
    for (const owner of this.#names) {
      const mine = { relay, lanes: part?.lanes ?? [], owners: [owner], unordered, died: false };
      // What is ready again is not what the stream would bring next.
      const released = part === undefined ? 0 : await takeBackOf(this.#tables.outbox, mine);
      await this.#ownership.give(owner, undefined, released > 0 ? undefined : note);
    }
    this.#names = [];
  }

  async readNew([part]: readonly MongoPart[], limit: Limit, blame: Blame): Promise<Page | NoPage> {
    if (part === undefined) return "nothing";
    return this.#claiming(part, async () => {
      const page = await this.#source.ready({ ...this.#scope(part, limit, blame), idle: this.#pagesInHand === 0 });
      if (page === undefined) return "nothing";
      if (page === "lost") return page;
      this.#pagesInHand++;
      const attempts = page.messages.map(({ failures }) => failures);
      return {
        part,
        messages: page.messages,
        attempts: attempts.some((count) => count > 0) ? attempts : undefined,
        crashes: page.messages[0]!.crashes,
        mark: page.end,
      };
    });
  }

  readParked(
    part: MongoPart,
    keys: readonly BlockedKey[],
    limit: Limit,
    blame: Blame,
  ): Promise<ParkedPage<StoredMessage> | "lost" | "slow"> {
    return this.#claiming(part, () => this.#claims.parked(keys, { ...this.#scope(part, limit, blame), idle: false }));
  }

  #scope({ owner, lanes }: MongoPart, limit: Limit, blame: Blame) {
    return { owner, lanes, streams: this.#streams, blame, limit };
  }

  /** Claims within the lease, which is renewed when too little of it is left. */
  async #claiming<T>(part: MongoPart, claim: () => Promise<T>): Promise<T | "lost" | "slow"> {
    try {
      return this.#lease.short && !(await this.#renew(part)) ? "lost" : await claim();
    } catch (error) {
      // The server has given up by itself.
      if (isTimeExpired(error)) return "slow";
      // Documents may have been claimed though the answer was lost, and may yet be.
      this.#lease.noteUnknown();
      throw error;
    }
  }

  suspect(_: MongoPart, message: StoredMessage, inHand: boolean): Promise<boolean> {
    return whileAlone(this.#tables.outbox, message, { $set: { alone: inHand } });
  }

  async write(part: MongoPart, settlement: MongoSettlement): Promise<boolean> {
    // Nothing is written for lanes that this process has lost, not even for those that no other process has taken yet.
    if (this.#lease.short && !(await this.#renew(part))) return false;
    const operations = settleOperations(settlement, () => this.#lease.serverNow());
    try {
      if (!(await this.#writeAll(part, operations))) return false;
    } catch (error) {
      // Only the lease keeps what came by a change stream in time, so this may yet take effect.
      if (operations.streamed.length + operations.late.length > 0 && !isTimeExpired(error)) this.#lease.noteUnknown();
      throw error;
    }
    if (!this.#noted.has(settlement)) this.#noteWritten(settlement);
    if (settlement.clearCrashes) await this.#renew(part, true);
    // Counted with the write that comes right behind it, if there is one. When this fails, the settlement is written
    // nevertheless.
    else if (!settlement.isFollowed()) await this.#renew(part).catch(() => undefined);
    return true;
  }

  async #writeAll({ owner }: MongoPart, operations: SettleOperations): Promise<boolean> {
    const { outbox } = this.#tables;
    const { relay } = this.#options;
    const hold = () => this.#lease.hold(relay, owner);
    if (operations.late.length > 0 && !(await claimLate(outbox, operations, hold()))) return false;
    let matched = operations.streamed.length === 0 ? 0 : await settleStreamed(outbox, operations, hold());
    const bulk = operations.bulk();
    if (bulk.length > 0) matched += (await outbox.bulkWrite(bulk, { ordered: false })).matchedCount;
    if (matched < operations.ids.length && !(await this.#wasWritten(operations))) return false;
    if (operations.dead.length > 0) {
      const dying = await outbox.find({ _id: { $in: operations.dead }, waits: "dying" });
      await writeLetters(this.#tables, relay, dying);
    }
    return true;
  }

  async #wasWritten({ ids, tokens }: SettleOperations): Promise<boolean> {
    const written = { _id: { $in: ids }, lease_token: { $in: tokens() }, status: { $ne: "processing" } };
    return (await this.#tables.outbox.count(written)) === ids.length;
  }

  #noteWritten(settlement: MongoSettlement): void {
    this.#noted.add(settlement);
    this.#uncounted += settlement.published;
    for (const { mark, complete } of settlement.pages) {
      this.#pagesInHand = Math.max(0, this.#pagesInHand - 1);
      if (complete && mark !== undefined) this.#source.settled(mark);
    }
  }

  async promote(parts: readonly MongoPart[]): Promise<number | null> {
    const [part] = parts;
    if (part === undefined) return null;
    const scope = { lanes: part.lanes, streams: this.#streams };
    // Promoted messages come by no change stream: a process that goes on from a stored time would let later ones
    // overtake them.
    if (!this.#source.rescan() || (await this.#renew(part))) {
      await promote(this.#tables, { ...scope, fence: () => this.#lease.fence() }).catch(unlessSlow);
    }
    return (await nextScheduledMs(this.#tables, scope)) ?? null;
  }

  async carryOut([part]: readonly MongoPart[]): Promise<void> {
    if (part === undefined) return;
    const { relay } = this.#options;
    await carryOutCommands(this.#tables, { relay, lanes: part.lanes }, this.#lease.fence()).catch(unlessSlow);
  }

  async tidy(): Promise<void> {}

  /** True while the lanes are its own. */
  async #renew({ owner, lanes }: MongoPart, clearCrashes = false): Promise<boolean> {
    const published = this.#uncounted;
    this.#uncounted = 0;
    const sentAt = this.#clock.monotonic();
    const renewing = this.#ownership.settled(owner, published, clearCrashes, this.#note());
    const view = await renewing.catch((error: unknown) => {
      this.#uncounted += published;
      throw error;
    });
    return view !== undefined && this.#noteView(view, owner, lanes, sentAt);
  }

  /** False when lanes went to others. */
  #noteView(view: RelayView, owner: string, lanes: readonly number[], sentAt: number): boolean {
    const known = this.#lease.note(view, owner, sentAt);
    this.#source.saw(view);
    const mine = new Set(view.lanes.flatMap((lane) => (lane.owner === owner ? [lane.lane] : [])));
    return known && lanes.every((lane) => mine.has(lane));
  }

  #note() {
    return this.#source.note(this.#pagesInHand === 0);
  }
}

/** Work that the server had no time for is done another time. */
function unlessSlow(error: unknown): void {
  if (!isTimeExpired(error)) throw error;
}
