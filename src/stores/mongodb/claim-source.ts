import { uuidv7 } from "../../core/uuid.ts";
import type { BlockedKey } from "../../lanes/blocked-keys.ts";
import type { Blame, Limit, ParkedPage } from "../../lanes/lane-port.ts";
import { claimDocuments, readReady, readUpTo, type StreamEnd } from "./claims.ts";
import type { ClusterTime } from "./cluster-time.ts";
import { writeLetters } from "./dead-letters.ts";
import type { Lease } from "./lease.ts";
import type { Document } from "./mongodb-client.ts";
import { sizeOf, StoredMessage, whyUnreadable, type Waits } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";
import type { RelayView, ResumeNote } from "./mongodb-ownership.ts";

export interface ClaimScope {
  owner: string;
  lanes: readonly number[];
  streams: readonly string[] | null;
  /** Unless "none", there is one message. */
  blame: Blame;
  limit: Limit;
  /** All new messages that were handed out are settled. */
  idle: boolean;
}

/** New messages, and where the stream stands after them if they came by one. */
export interface ReadyPage {
  messages: readonly StoredMessage[];
  end: StreamEnd | undefined;
}

/** "lost": the lease is over, or the documents were changed meanwhile. */
export type Claimed = ReadyPage | "lost" | undefined;

/**
 * Where new messages come from. They may come by a change stream, which claims nothing and can be gone on with from a
 * time; without one, there is nothing to remember.
 */
export interface MessageSource {
  /** New messages, those of failed keys included: they are handed out to be parked. */
  ready(scope: ClaimScope): Promise<Claimed>;
  /** Another owner, or other lanes; where to go on, if that is known for all of them. */
  restart(view: RelayView, from: ClusterTime | undefined): void;
  /** The relay's document as it is now. */
  saw(view: RelayView): void;
  /** Documents become ready otherwise than by an insert. False: it finds them anyway. */
  rescan(): boolean;
  settled(upTo: StreamEnd): void;
  /** Up to where all is settled, for the relay's document; undefined: this source has no such time. */
  note(idle: boolean): ResumeNote | undefined;
  close(): void;
}

/** Finds what may go by an index and claims it. */
export class ClaimSource implements MessageSource {
  readonly #tables: Tables;
  readonly #relay: string;
  readonly #lease: Lease;

  constructor(tables: Tables, relay: string, lease: Lease) {
    this.#tables = tables;
    this.#relay = relay;
    this.#lease = lease;
  }

  async ready(scope: ClaimScope): Promise<Claimed> {
    for (;;) {
      const documents = await readReady(this.#tables.outbox, scope.lanes, scope.streams, scope.limit);
      if (documents.length === 0) return undefined;
      const readable = await this.#declareUnreadableDead(documents, "ready");
      if (readable === undefined) return "lost";
      if (readable.length === 0) continue;
      const messages = await this.#claim(scope, readable, "ready");
      return messages === undefined ? "lost" : { messages, end: undefined };
    }
  }

  /**
   * New messages that no other process can have: they are held without a write. Undefined: none of them was a message.
   */
  async streamed(documents: readonly Document[], end: StreamEnd): Promise<Claimed> {
    const readable = await this.#declareUnreadableDead(documents, "ready");
    if (readable === undefined) return "lost";
    if (readable.length === 0) return undefined;
    return { messages: readable.map((document) => new StoredMessage(document)), end };
  }

  /** The first messages of blocked keys. */
  async parked(keys: readonly BlockedKey[], scope: ClaimScope): Promise<ParkedPage<StoredMessage> | "lost"> {
    const names = new Map(
      keys.map((key) => [key.key === null ? String(key.single) : `${key.stream}\0${key.key}`, key]),
    );
    const keyOf = (document: Document) =>
      names.get(String(document["_id"])) ?? names.get(`${String(document["stream"])}\0${String(document["key"])}`);
    const found = await this.#readParked(keys, scope.limit);
    const documents = await this.#declareUnreadableDead(found, "parked");
    if (documents === undefined) return "lost";
    const died = new Map<BlockedKey, number>();
    const readable = new Set(documents);
    for (const document of found) {
      const key = readable.has(document) ? undefined : keyOf(document);
      if (key !== undefined) died.set(key, (died.get(key) ?? 0) + 1);
    }
    const { due, later } = this.#dueOf(documents, keyOf);
    const messages = due.length === 0 ? [] : await this.#claim(scope, due, "parked");
    if (messages === undefined) return "lost";
    // A read that came to its limit says nothing of keys that it did not reach.
    const bytes = found.reduce((sum, document) => sum + sizeOf(document), 0);
    return {
      messages,
      keys: due.map((document) => keyOf(document)!),
      attempts: messages.map(({ failures }) => failures),
      errors: undefined,
      crashes: messages[0]?.crashes ?? 0,
      later,
      died,
      complete: found.length < scope.limit.messages && bytes < scope.limit.bytes,
    };
  }

  async #readParked(keys: readonly BlockedKey[], limit: Limit): Promise<Document[]> {
    const { outbox } = this.#tables;
    const relay = this.#relay;
    const keyed = keys.filter(({ key }) => key !== null).map(({ lane, stream, key }) => ({ lane, stream, key }));
    const solos = keys.filter(({ key }) => key === null).map(({ single }) => single);
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
  #dueOf(documents: readonly Document[], keyOf: (document: Document) => BlockedKey | undefined) {
    const serverNow = this.#lease.serverNow();
    const later = new Map<BlockedKey, number>();
    const due = documents.filter((document) => {
      const key = keyOf(document);
      if (key === undefined || later.has(key)) return false;
      const { status, next_retry_at: next } = document;
      const ahead = status === "failed" ? (next as Date).getTime() - serverNow : 0;
      if (ahead > 0) later.set(key, ahead);
      return ahead <= 0;
    });
    for (const document of due) later.delete(keyOf(document)!);
    return { due, later };
  }

  /** Undefined: not all of them could be claimed. */
  async #claim(
    { owner, blame }: ClaimScope,
    documents: readonly Document[],
    from: "ready" | "parked",
  ): Promise<StoredMessage[] | undefined> {
    const token = uuidv7();
    const ids = documents.map(({ _id }) => _id);
    const hold = this.#lease.hold(this.#relay, owner);
    const messages = documents.map((document) => new StoredMessage(document, token));
    const isKnown = messages.length === 1 && messages[0]!.crashes > 0;
    const alone = blame === "any" || (blame === "known" && isKnown);
    const claimed = await claimDocuments(this.#tables.outbox, ids, { ...hold, from, alone, token });
    return claimed < ids.length ? undefined : messages;
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

  /** Documents that no message can be made of are declared dead at once, with the reason; gives the others. */
  async #declareUnreadableDead(documents: readonly Document[], waits: Waits): Promise<Document[] | undefined> {
    const readable: Document[] = [];
    for (const document of documents) {
      const why = whyUnreadable(document);
      if (why === undefined) readable.push(document);
      else if (!(await this.#moveToDeadLetters(document, waits, `The document is no message: ${why}`)))
        return undefined;
    }
    return readable;
  }

  async #moveToDeadLetters({ _id }: Document, waits: Waits, error: string): Promise<boolean> {
    const { outbox } = this.#tables;
    const relay = this.#relay;
    const { until, maxTimeMS } = this.#lease.fence();
    const at = new Date(this.#lease.serverNow());
    const fields = { status: "dead", waits: "dying", relay, attempts: 0, last_error: error, errors: [{ at, error }] };
    const dead = { ...fields, death: uuidv7(), died_at: at, blocks: false };
    const filter = { _id, waits, $expr: { $lt: ["$$NOW", until] } };
    const died = await outbox.findOneAndUpdate(filter, { $set: dead }, { returnDocument: "after", maxTimeMS });
    if (died !== null) await writeLetters(this.#tables, relay, [died]);
    return died !== null;
  }
}
