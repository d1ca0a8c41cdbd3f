import type { JoinOptions } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import { TxboxError } from "../../core/errors.ts";
import type { Document } from "./mongodb-client.ts";
import { isDuplicateKey } from "./mongodb-errors.ts";
import type { ClusterTime } from "./cluster-time.ts";
import type { Table } from "./table.ts";

export interface StaleOwner {
  owner: string;
  died: boolean;
}

export interface LaneView {
  lane: number;
  owner: string | null;
  epoch: number;
  freed_at: Date;
  /** Owners that died since this lane last made progress. */
  crashes: number;
  /** Owners before this one whose claims have not been taken back yet. */
  stale: StaleOwner[];
  /**
   * Where the change stream stood when the lane changed hands; void unless the epoch is still the same. `taken`: its
   * owner has not followed a stream for it yet, so whatever it knows is about other lanes.
   */
  resume?: { time: ClusterTime | null; epoch: number; taken?: boolean } | null;
}

/** What the owner knows of its change stream. Of two such notes that arrive, the one with the greater number counts. */
export interface ResumeNote {
  n: number;
  /** All that was committed before is settled; null: nothing is known. */
  time: ClusterTime | null;
  /**
   * Void when documents were made ready since in a way that the stream does not show: then the relay has another
   * number.
   */
  rescans: number;
}

export interface MemberView {
  owner: string;
  lease_until: Date;
  /** Since 0.7: with so many messages behind failed ones, it takes no new ones. */
  max_parked?: number;
  resume?: ResumeNote;
}

/** The one document of a relay: whatever changes hands, changes in one atomic write to it. */
export interface RelayView {
  streams: string[] | null;
  paused: boolean;
  members: MemberView[];
  lanes: LaneView[];
  published: number;
  /**
   * How often messages of a dropped relay were made ready: processes that follow a change stream have to look for them.
   */
  rescans: number;
  /** The server's time of the write that this is the answer to. */
  at: Date;
  creating: { owner: string; until: Date } | undefined;
}

export function viewOf(document: Document): RelayView {
  return {
    streams: (document["streams"] as string[] | null | undefined) ?? null,
    paused: document["paused"] === true,
    members: document["members"] as MemberView[],
    lanes: document["lanes"] as LaneView[],
    published: Number(document["published"]),
    rescans: Number(document["rescans"] ?? 0),
    at: document["at"] as Date,
    creating: document["creating"] as RelayView["creating"],
  };
}

const literal = (value: unknown): Document => ({ $literal: value });

/** Changes the lanes for which the condition on `$$lane` holds. */
function changeLanes(when: Document, change: Document): Document {
  const changed = { $mergeObjects: ["$$lane", change] };
  return { $map: { input: "$lanes", as: "lane", in: { $cond: [when, changed, "$$lane"] } } };
}

const NEXT_EPOCH: Document = { $add: ["$$lane.epoch", 1] };

/**
 * Where the lane's next owner goes on in the stream: where this owner stands, if it went on from its predecessor's
 * place.
 */
function passedOn(time: Document): Document {
  const taken = { $and: ["$$lane.resume.taken", { $eq: ["$$lane.resume.epoch", "$$lane.epoch"] }] };
  return { time: { $cond: [taken, "$$lane.resume.time", time] }, epoch: NEXT_EPOCH };
}

function timeOf(note: string): Document {
  const holds = { $eq: [`${note}.rescans`, { $ifNull: ["$rescans", 0] }] };
  return { $cond: [holds, { $ifNull: [`${note}.time`, null] }, null] };
}

/** What the lane's owner has noted. */
function noted(): Document {
  const isOwner = { $eq: ["$$member.owner", "$$lane.owner"] };
  const owner = { $first: { $filter: { input: "$members", as: "member", cond: isOwner } } };
  return { $let: { vars: { owner }, in: timeOf("$$owner.resume") } };
}

/** Of a lane that changed hands only between owners that passed it on. */
export function resumeTime({ resume, epoch }: LaneView): ClusterTime | undefined {
  return resume != null && resume.epoch === epoch ? (resume.time ?? undefined) : undefined;
}

/** Who owns which lanes of a relay. Time is the server's alone. */
export class MongoOwnership {
  readonly #relays: Table;
  readonly #relay: string;
  readonly #leaseMs: number;
  readonly #maxParked: number;

  constructor(relays: Table, { relay, leaseMs, maxParked }: Pick<JoinOptions, "relay" | "leaseMs" | "maxParked">) {
    this.#relays = relays;
    this.#relay = relay;
    this.#leaseMs = leaseMs;
    this.#maxParked = maxParked;
  }

  async look(): Promise<RelayView | undefined> {
    const [found] = await this.#relays.aggregate([{ $match: { _id: this.#relay } }, { $set: { at: "$$NOW" } }]);
    return found === undefined ? undefined : viewOf(found);
  }

  /** Creates the relay with free lanes; false when another process did. Its creator prepares it before others join. */
  async create(owner: string, streams: readonly string[] | undefined): Promise<boolean> {
    const lanes = Array.from({ length: LANES }, (_, lane) => ({ lane, owner: null, epoch: 0, crashes: 0, stale: [] }));
    const until = { $add: ["$$NOW", this.#leaseMs] };
    const freed = {
      $map: { input: literal(lanes), as: "lane", in: { $mergeObjects: ["$$lane", { freed_at: "$$NOW" }] } },
    };
    const fresh = {
      streams: literal(streams ?? null),
      paused: false,
      members: [],
      lanes: freed,
      published: { $toLong: 0 },
      created_at: "$$NOW",
      creating: { owner: literal(owner), until },
    };
    try {
      // The filter never matches: it is an insert that knows the server's time.
      const result = await this.#relays.updateOne(
        { _id: this.#relay, absent: true },
        [{ $set: fresh }, { $unset: "absent" }],
        {
          upsert: true,
        },
      );
      return result.upsertedCount > 0;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  /** Goes on with the creation that its process did not finish. */
  async inheritCreation(owner: string): Promise<RelayView | undefined> {
    const over = { $lt: ["$creating.until", "$$NOW"] };
    const until = { $add: ["$$NOW", this.#leaseMs] };
    return this.#change([{ $set: { creating: { owner: literal(owner), until } } }], {
      creating: { $exists: true },
      $expr: over,
    });
  }

  /** More time for the process that creates the relay; undefined when another process has gone on with it. */
  async extendCreation(owner: string): Promise<RelayView | undefined> {
    const until = { $add: ["$$NOW", this.#leaseMs] };
    return this.#change([{ $set: { creating: { owner: literal(owner), until } } }], { "creating.owner": owner });
  }

  async finishCreation(owner: string): Promise<void> {
    await this.#relays.updateOne({ _id: this.#relay, "creating.owner": owner }, { $unset: { creating: 1 } });
  }

  /**
   * Joins as `owner`, in place of earlier names of the same process: lanes that are still theirs go over, and with them
   * the duty to take back what they claimed.
   */
  join(owner: string, before: readonly string[]): Promise<RelayView | undefined> {
    const old = literal([...before, owner]);
    const others = {
      $filter: { input: "$members", as: "member", cond: { $not: { $in: ["$$member.owner", old] } } },
    };
    return this.#change([
      {
        $set: {
          members: { $concatArrays: [others, [this.#member(owner)]] },
          lanes: changeLanes(
            { $in: ["$$lane.owner", old] },
            {
              owner: literal(owner),
              epoch: NEXT_EPOCH,
              stale: { $concatArrays: ["$$lane.stale", [{ owner: "$$lane.owner", died: false }]] },
              resume: passedOn(noted()),
            },
          ),
        },
      },
    ]);
  }

  /** Renews the lease and frees the lanes of members whose lease has run out. */
  tend(owner: string, resume?: ResumeNote): Promise<RelayView | undefined> {
    const over = { $and: [{ $lt: ["$$member.lease_until", "$$NOW"] }, { $ne: ["$$member.owner", literal(owner)] }] };
    const expired = { $filter: { input: "$members", as: "member", cond: over } };
    return this.#change([
      { $set: { expired: { $map: { input: expired, as: "member", in: "$$member.owner" } } } },
      {
        $set: {
          members: this.#renewed(owner, { $not: { $in: ["$$member.owner", "$expired"] } }, resume),
          lanes: changeLanes(
            { $in: ["$$lane.owner", "$expired"] },
            {
              owner: null,
              epoch: NEXT_EPOCH,
              freed_at: "$$NOW",
              crashes: { $add: ["$$lane.crashes", 1] },
              stale: { $concatArrays: ["$$lane.stale", [{ owner: "$$lane.owner", died: true }]] },
              resume: passedOn(noted()),
            },
          ),
        },
      },
      { $unset: "expired" },
    ]);
  }

  /** After a settle: renews the lease and counts what was published. */
  settled(
    owner: string,
    published: number,
    clearCrashes: boolean,
    resume?: ResumeNote,
  ): Promise<RelayView | undefined> {
    const set: Document = {
      members: this.#renewed(owner, literal(true), resume),
      published: { $add: ["$published", { $toLong: published }] },
    };
    if (clearCrashes) set["lanes"] = changeLanes({ $eq: ["$$lane.owner", literal(owner)] }, { crashes: 0 });
    return this.#change([{ $set: set }]);
  }

  /** Takes those of the lanes that are free, for a process that is known. */
  take(owner: string, lanes: readonly number[]): Promise<RelayView | undefined> {
    const free = { $and: [{ $eq: ["$$lane.owner", null] }, { $in: ["$$lane.lane", literal(lanes)] }] };
    const known = { $eq: ["$$lane.resume.epoch", "$$lane.epoch"] };
    const time = { $cond: [known, "$$lane.resume.time", null] };
    const resume = { time, epoch: NEXT_EPOCH, taken: true };
    return this.#change(
      [{ $set: { lanes: changeLanes(free, { owner: literal(owner), epoch: NEXT_EPOCH, resume }) } }],
      {
        "members.owner": owner,
      },
    );
  }

  /**
   * Frees lanes; all that are its own, if none are named. Attempts that take long may still be under way in them, so the
   * next owner has the duty to take back what this one had claimed.
   */
  give(owner: string, lanes: readonly number[] | undefined, note?: ResumeNote): Promise<RelayView | undefined> {
    const mine = { $eq: ["$$lane.owner", literal(owner)] };
    const chosen = lanes === undefined ? mine : { $and: [mine, { $in: ["$$lane.lane", literal(lanes)] }] };
    const resume = passedOn({ $let: { vars: { note: literal(note ?? null) }, in: timeOf("$$note") } });
    const stale = { $concatArrays: ["$$lane.stale", [{ owner: literal(owner), died: false }]] };
    const set: Document = {
      lanes: changeLanes(chosen, { owner: null, epoch: NEXT_EPOCH, freed_at: "$$NOW", stale, resume }),
    };
    if (lanes === undefined) {
      set["members"] = {
        $filter: { input: "$members", as: "member", cond: { $ne: ["$$member.owner", literal(owner)] } },
      };
    }
    return this.#change([{ $set: set }]);
  }

  /** What earlier owners of these lanes had claimed is taken back. */
  async forgetStale(owner: string): Promise<void> {
    await this.#change([{ $set: { lanes: changeLanes({ $eq: ["$$lane.owner", literal(owner)] }, { stale: [] }) } }]);
  }

  #renewed(owner: string, keep: Document, resume?: ResumeNote): Document {
    const mine = { $eq: ["$$member.owner", literal(owner)] };
    const later = { $gt: [resume?.n, { $ifNull: ["$$member.resume.n", 0] }] };
    const note = resume === undefined ? {} : { resume: { $cond: [later, literal(resume), "$$member.resume"] } };
    return {
      $map: {
        input: { $filter: { input: "$members", as: "member", cond: keep } },
        as: "member",
        in: { $cond: [mine, { ...this.#member(owner), ...note }, "$$member"] },
      },
    };
  }

  #member(owner: string): Document {
    return {
      owner: literal(owner),
      lease_until: { $add: ["$$NOW", this.#leaseMs] },
      max_parked: literal(this.#maxParked),
    };
  }

  async #change(pipeline: Document[], filter: Document = {}): Promise<RelayView | undefined> {
    const update = [...pipeline, { $set: { at: "$$NOW" } }];
    const changed = await this.#relays.findOneAndUpdate({ _id: this.#relay, ...filter }, update, {
      returnDocument: "after",
    });
    return changed === null ? undefined : viewOf(changed);
  }
}

export function relayDropped(relay: string): TxboxError {
  return new TxboxError("relay_dropped", `Relay "${relay}" does not exist any more`, {
    fix: "Start it anew to create it again",
  });
}
