import type { Clock, JoinOptions } from "../../core/contracts.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import { claimDocuments, readReady, readUpTo, type MongoClaim, type ReadLimit, type StreamEnd } from "./claims.ts";
import { writeLetters } from "./dead-letters.ts";
import type { Lease } from "./lease.ts";
import type { Document } from "./mongodb-client.ts";
import { sizeOf, StoredMessage, whyUnreadable, type Waits } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";
import type { RelayView, ResumeNote } from "./mongodb-ownership.ts";
import type { ClusterTime } from "./cluster-time.ts";

/** How many due keys one claim may hold. */
const KEYS_PER_CLAIM = 100;

export interface ClaimScope {
  owner: string;
  lanes: readonly number[];
  streams: readonly string[] | null;
  /** The limit while owners have died; 1: each message is tried alone. */
  careful: number | undefined;
  limit: ReadLimit;
  generation: number;
  /** Nothing is in hand and nothing is being settled. */
  idle: boolean;
}

/** "refused": the lease is over, or somebody changed the documents meanwhile. */
export type Claimed = MongoClaim | "refused" | undefined;

/**
 * Where messages come from. New ones may come by a change stream, which claims nothing and can be gone on with from a
 * time; without one, there is nothing to remember.
 */
export interface MessageSource {
  /** New messages, those of failed keys included: they are handed out to be parked. */
  ready(scope: ClaimScope): Promise<Claimed>;
  /** Messages of failed keys whose turn it is. */
  parked(scope: ClaimScope): Promise<Claimed>;
  /** Another owner, or other lanes; where to go on, if that is known for all of them. */
  restart(view: RelayView, from: ClusterTime | undefined): void;
  /** The relay's document as it is now. */
  saw(view: RelayView): void;
  /** Documents become ready otherwise than by an insert. False: it finds them anyway. */
  rescan(): boolean;
  settled(upTo: StreamEnd): void;
  /** Up to where all is settled, for the relay's document; undefined: there is no such thing. */
  note(idle: boolean): ResumeNote | undefined;
  close(): void;
}

/** Finds what may go by an index and claims it. */
export class ClaimSource implements MessageSource {
  readonly #tables: Tables;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  readonly #keys: BlockedKeys;
  readonly #lease: Lease;

  constructor(tables: Tables, options: JoinOptions, clock: Clock, keys: BlockedKeys, lease: Lease) {
    this.#tables = tables;
    this.#options = options;
    this.#clock = clock;
    this.#keys = keys;
    this.#lease = lease;
  }

  get full(): boolean {
    return this.#keys.parked >= this.#options.maxParked;
  }

  async ready(scope: ClaimScope): Promise<Claimed> {
    if (this.full) return undefined;
    for (;;) {
      const documents = await readReady(this.#tables.outbox, scope.lanes, scope.streams, scope.limit);
      if (documents.length === 0) return undefined;
      const readable = await this.#buryUnreadable(documents, "ready");
      if (readable === undefined) return "refused";
      if (readable.length > 0) return this.#claim(scope, readable, "ready", [], []);
    }
  }

  /** New messages that nobody else can have: they are held without a write. Undefined: none of them was a message. */
  async streamed(documents: readonly Document[], generation: number, streamed: StreamEnd): Promise<Claimed> {
    const readable = await this.#buryUnreadable(documents, "ready");
    if (readable === undefined) return "refused";
    if (readable.length === 0) return undefined;
    const messages = readable.map((document) => new StoredMessage(document));
    const none = { attempts: undefined, alone: false, crashes: 0, token: "", keys: [], entries: [] };
    return { ...none, kind: "new", messages, generation, streamed, detached: new Map() };
  }

  async parked(scope: ClaimScope): Promise<Claimed> {
    const due = this.#keys.due(this.#clock.monotonic(), KEYS_PER_CLAIM);
    if (due.length === 0) return undefined;
    try {
      return await this.#parkedOf(due, scope);
    } finally {
      for (const key of due) if (!key.draining) this.#keys.schedule(key);
    }
  }

  async #parkedOf(due: readonly BlockedKey[], scope: ClaimScope): Promise<Claimed> {
    const found = await this.#readParked(due, scope.limit);
    const documents = await this.#buryUnreadable(found, "parked");
    if (documents === undefined) return "refused";
    const messages = documents.map((document) => new StoredMessage(document));
    for (const gone of found.filter((document) => !documents.includes(document))) {
      const key = this.#keys.of(new StoredMessage(gone));
      if (key !== undefined) this.#keys.park(key, -1);
    }
    const ready = this.#dueOf(messages, due);
    // A read that came to its limit says nothing of keys that it did not reach.
    const bytes = found.reduce((sum, document) => sum + sizeOf(document), 0);
    if (found.length < scope.limit.messages && bytes < scope.limit.bytes) this.#forgetGone(due, messages);
    if (ready.length === 0) return undefined;
    const entries = ready.map((message) => this.#keys.ensure(message));
    return this.#claim(
      scope,
      ready.map(({ document }) => document),
      "parked",
      [...new Set(entries)],
      entries,
    );
  }

  async #readParked(due: readonly BlockedKey[], limit: ReadLimit): Promise<Document[]> {
    const { outbox } = this.#tables;
    const { relay } = this.#options;
    const keyed = due.filter(({ key }) => key !== null).map(({ lane, stream, key }) => ({ lane, stream, key }));
    const solos = due.filter(({ key }) => key === null).map(({ solo }) => solo);
    const parked = { waits: "parked" satisfies Waits };
    const of = (those: readonly Document[]) =>
      those.length === 1 ? those[0]! : { $or: those.map((one) => ({ ...parked, relay, ...one })) };
    const found = [
      ...(keyed.length === 0 ? [] : await readUpTo(outbox, { ...parked, relay, ...of(keyed) }, limit)),
      ...(solos.length === 0 ? [] : await readUpTo(outbox, { ...parked, _id: { $in: solos } }, limit)),
    ];
    if (keyed.length > 0 && solos.length > 0) found.sort((a, b) => Number(a["position"]) - Number(b["position"]));
    return found.slice(0, limit.messages);
  }

  /**
   * Whatever comes behind a message that is not due waits with it. That is decided once for a key: a second look at the
   * clock may find it due, and would let the others go without it.
   */
  #dueOf(messages: readonly StoredMessage[], due: readonly BlockedKey[]): StoredMessage[] {
    const now = this.#clock.monotonic();
    const serverNow = this.#lease.serverNow();
    const waiting = new Set<BlockedKey>();
    return messages.filter((message) => {
      const key = this.#keys.ensure(message);
      if (!due.includes(key) || waiting.has(key)) return false;
      const { status, next_retry_at: next } = message.document;
      const ahead = status === "failed" ? (next as Date).getTime() - serverNow : 0;
      if (ahead <= 0) return true;
      key.dueAt = now + ahead;
      waiting.add(key);
      return false;
    });
  }

  /** Somebody has deleted what was parked. */
  #forgetGone(due: readonly BlockedKey[], found: readonly StoredMessage[]): void {
    const there = new Set(found.map((message) => this.#keys.of(message)));
    for (const key of due) {
      if (there.has(key)) continue;
      this.#keys.park(key, -key.parked);
      this.#keys.freeIfEmpty(key);
    }
  }

  async #claim(
    { owner, careful, generation }: ClaimScope,
    documents: readonly Document[],
    from: "ready" | "parked",
    keys: readonly BlockedKey[],
    entries: readonly BlockedKey[],
  ): Promise<Claimed> {
    const alone = careful === 1 && documents.length === 1;
    const token = uuidv7();
    const ids = documents.map(({ _id }) => _id);
    const hold = this.#lease.hold(this.#options.relay, owner);
    const claimed = await claimDocuments(this.#tables.outbox, ids, { ...hold, from, alone, token });
    if (claimed < ids.length) return "refused";
    for (const key of keys) key.draining = true;
    const messages = documents.map((document) => new StoredMessage(document));
    const attempts = messages.map(({ failures }) => failures);
    const routes = entries.map(({ route }) => route);
    return {
      kind: from === "ready" ? "new" : "retry",
      messages,
      routes: routes.some((route) => route !== undefined) ? routes : undefined,
      attempts: attempts.some((count) => count > 0) ? attempts : undefined,
      alone,
      crashes: alone ? messages[0]!.crashes : 0,
      token,
      generation,
      keys,
      entries,
      streamed: undefined,
      detached: new Map(),
    };
  }

  // A claim is in the documents themselves, so there is nothing to go on from.
  restart(): void {}
  saw(): void {}
  rescan(): boolean {
    return false;
  }
  settled(): void {}
  note(): undefined {}
  close(): void {}

  /** Documents that no message can be made of are dead at once, with the reason; those that are left. */
  async #buryUnreadable(documents: readonly Document[], waits: Waits): Promise<Document[] | undefined> {
    const readable: Document[] = [];
    for (const document of documents) {
      const why = whyUnreadable(document);
      if (why === undefined) readable.push(document);
      else if (!(await this.#bury(document, waits, `The document is no message: ${why}`))) return undefined;
    }
    return readable;
  }

  async #bury({ _id }: Document, waits: Waits, error: string): Promise<boolean> {
    const { outbox } = this.#tables;
    const { relay } = this.#options;
    const { until, maxTimeMS } = this.#lease.fence();
    const at = new Date(this.#lease.serverNow());
    const fields = { status: "dead", waits: "dying", relay, attempts: 0, last_error: error, errors: [{ at, error }] };
    const dead = { ...fields, death: uuidv7(), died_at: at, blocks: false };
    const filter = { _id, waits, $expr: { $lt: ["$$NOW", until] } };
    const buried = await outbox.findOneAndUpdate(filter, { $set: dead }, { returnDocument: "after", maxTimeMS });
    if (buried !== null) await writeLetters(this.#tables, relay, [buried]);
    return buried !== null;
  }
}
