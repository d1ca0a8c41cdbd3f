import type { Author, ChangePage, ChangeQuery, LetterEdit, LetterName, StoppedRedrive } from "./changes.ts";
import type { AttemptError, ReceiptStatus } from "./contracts.ts";
import type { Message } from "./message.ts";
import type {
  ConsumerInfo,
  MessagePage,
  MessageReceipt,
  MessageSearch,
  RewindPreview,
  WaitingQuery,
} from "./search.ts";

/** What people and tools see and change of a store: its history, its figures, its dead letters, what is wrong with it. */

// ── A little history ────────────────────────────────────────────────────────────────────────────────────────────

/** What a relay or a consumer did in some seconds. */
export interface SampleCounts {
  published: number;
  retried: number;
  dead: number;
  /** Their target was out; no attempt was counted. */
  unavailable: number;
  processed: number;
  duplicate: number;
  failed: number;
  rejected: number;
}

/** Of one relay or one consumer. */
export type SampleOf = { relay: string } | { consumer: string };

/** What a process tells of itself, at most once in ten seconds. */
export interface NewSample extends SampleCounts {
  of: SampleOf;
  owner: string;
  /** The last error of that time, and how long ago it was. */
  lastError: { error: string; agoMs: number } | undefined;
}

/** Keeps what relays and consumers did, for a day. */
export interface History {
  record(sample: NewSample): Promise<void>;
}

// ── Looking and mending ─────────────────────────────────────────────────────────────────────────────────────────

export type MessageStatus = "scheduled" | "pending" | "processing" | "published" | "retrying" | "dead";

export interface MessageInfo extends Omit<Message, "position"> {
  position: bigint | null;
  relay: string | null;
  status: MessageStatus;
  attempts: number;
  lastError: string | null;
  /** Failed attempts that are known with their times, oldest first; a store may keep those of open and dead messages only. */
  errors: AttemptError[];
  publishedAt: Date | null;
  deliverAt: Date | null;
}

export interface MessageQuery {
  id?: string;
  /** Any of these, at most 1,000. */
  ids?: readonly string[];
  stream?: string;
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  correlationId?: string;
  relay?: string;
  /** From 1 to 10,000. Default 100. */
  limit?: number;
  /** False: without bodies, headers and the times of errors, for lists and counts; they come empty. Default true. */
  contents?: boolean;
}

export interface RelayInfo {
  name: string;
  streams: string[] | null;
  paused: boolean;
  /**
   * `source`: how new messages come to a process that was asked to stream, "stream" or "polling", and why. `maxParked`: with
   * so many messages behind failed ones, the process takes no new ones; processes before 0.7 do not tell.
   */
  lanes: {
    owner: string | null;
    lanes: number;
    leaseMs: number;
    epoch: bigint;
    source?: string;
    maxParked?: number;
  }[];
  published: bigint;
  pending: number;
  /** `pending` is an estimate. */
  pendingEstimated: boolean;
  oldestPendingAgeMs: number | null;
  parked: number;
  blockedKeys: number;
  dead: number;
}

/** What monitoring reads of the whole store. None of it counts the log, so it costs the same however long that is. */
export interface StoreFigures {
  relays: RelayFigures[];
  /** Relays and consumers of this day. Empty where the role may not read samples. */
  activity: Activity[];
  /** Messages whose `deliverAt` has not come; exact up to 10,000. `nextAt`: the next of them is due. */
  scheduled: { count: number; estimated: boolean; nextAt: Date | null };
  /**
   * Streams that no relay reads: their messages wait, and go when their time is over. Found among the oldest and the
   * newest messages; `oldestAgeMs` is the age of the oldest that was seen.
   */
  unread: { stream: string; oldestAgeMs: number }[];
  /** Segments past their retention that wait for their archive, not for a relay. Always 0 without an archive. */
  unarchivedSegments: number;
  /** With indexes. */
  logBytes: number;
  receiptBytes: number;
  /**
   * Receipts of failed attempts that were not made good, by consumer. Null where only a long count could tell, because
   * there are too many receipts, or where the role may not read them.
   */
  failedReceipts: { consumer: string; count: number }[] | null;
}

export interface RelayFigures extends RelayInfo {
  /** Messages past their retention are kept because this relay has not settled them. */
  holdsBackRetention: boolean;
}

export interface DeadLetter extends Message {
  relay: string;
  state: "dead" | "requeued" | "discarded";
  /** A command waits for the relay to carry it out. */
  command: "requeue" | "discard" | null;
  attempts: number;
  lastError: string;
  errors: AttemptError[];
  diedAt: Date;
  /** Equal for letters of a relay with the same kind of error, see DeadGroup. */
  group: string;
  /** It has other contents than it was enqueued with: `original` has those. */
  edited: boolean;
}

/** A place in the order of dead letters: any letter marks its own. */
export type DeadPlace = Pick<DeadLetter, "position" | "relay" | "stream" | "id">;

export interface DeadFilter {
  relay?: string;
  id?: string;
  position?: bigint;
  stream?: string;
  type?: string;
  key?: string;
  /** Of a DeadGroup. */
  group?: string;
}

/**
 * Dead letters of a relay that died of the same kind of error: of one type, with errors that differ in numbers, ids and
 * quotes only.
 */
export interface DeadGroup {
  group: string;
  relay: string;
  /** Of the newest of them; others may be of another stream. */
  stream: string;
  type: string;
  /** Of the newest of them. */
  error: string;
  count: number;
  /** There are at least so many: more than were counted. */
  estimated: boolean;
  firstDiedAt: Date;
  lastDiedAt: Date;
  /** How many ordering keys they have; null: too many letters to tell at once. */
  keys: number | null;
  /** The newest of them. */
  example: DeadPlace;
}

/** Which groups of dead letters to show, those with most letters first. */
export interface DeadGroupQuery {
  relay?: string;
  stream?: string;
  type?: string;
  /** From 1 to 1,000. Default 100. */
  limit?: number;
}

/** Which dead letters to show, oldest first. */
export interface DeadQuery extends DeadFilter {
  /** Default "dead". */
  state?: DeadLetter["state"];
  /** Only what comes after this letter: the last one of a page gives the next page. */
  after?: DeadPlace;
  /** From 1 to 10,000. Default 100. */
  limit?: number;
  /** False: without bodies, headers and the times of errors, for lists and counts; they come empty. Default true. */
  contents?: boolean;
}

/** Which dead letters a command is for: those that match every field of the filter, or all. */
export interface DeadChoice extends DeadFilter {
  /** All of them, or all of `relay`. It has to be said: a choice without a filter is refused. */
  all?: true;
  /** These letters and no others, at most 1,000. */
  letters?: readonly DeadPlace[];
  /** At most so many, oldest first. Default: no limit. */
  limit?: number;
}

/** What a relay or a consumer did in ten seconds, all its processes together. A time in which nothing happened has none. */
export interface Sample extends SampleCounts {
  relay: string | null;
  consumer: string | null;
  /** When the ten seconds began, by the database's clock. */
  at: Date;
  lastError: string | null;
  lastErrorAt: Date | null;
}

/** Which samples to show, oldest first. They are kept for a day. */
export interface SampleQuery {
  relay?: string;
  consumer?: string;
  since: Date;
  /** Default: now. */
  until?: Date;
}

/** What a relay or a consumer did lately. */
export interface Activity {
  relay: string | null;
  consumer: string | null;
  /** Messages published or processed per second, in the last minute. */
  perSecond: number;
  /** The last error of this day. */
  lastError: string | null;
  lastErrorAt: Date | null;
}

/** A key, or a message that needs no order, that waits for its first message to go through. */
export interface BlockedKey {
  relay: string;
  stream: string;
  /** Null: a message without an order waits by itself. */
  key: string | null;
  lane: number;
  /** The message in front: the one that failed, or the dead letter that holds the key. Null when it is not known. */
  position: bigint | null;
  id: string | null;
  /** Failed attempts of the message in front. */
  attempts: number;
  /** Its last error; null while its first attempt takes long. */
  lastError: string | null;
  /** A dead letter holds the key (`onDead: "block"`) until it is requeued or discarded. */
  heldByDead: boolean;
  /** How many messages wait behind the one in front; counted up to 10,000. */
  waiting: number;
  /** Null when it is not known. */
  since: Date | null;
  /** When the message in front is tried again; null while a dead letter holds the key. */
  nextAttemptAt: Date | null;
}

/** A place in the order of blocked keys: any of them marks its own. */
export type BlockedPlace = Pick<BlockedKey, "relay" | "stream" | "key" | "lane" | "position">;

/** Which blocked keys to show, by relay, stream and key. */
export interface BlockedQuery {
  relay?: string;
  stream?: string;
  key?: string;
  /** Only what comes after this one: the last one of a page gives the next page. */
  after?: BlockedPlace;
  /** From 1 to 10,000. Default 100. */
  limit?: number;
}

/**
 * What was enqueued from `since` on and before `until`. A scheduled message counts from when it was due; on a store that
 * goes by the time of publishing, what was enqueued earlier and published since is there too.
 */
export interface SentQuery {
  relay: string;
  since: Date;
  until: Date;
  /** Only these; all that the relay delivers otherwise. */
  streams?: readonly string[];
  types?: readonly string[];
  /** `next` of the page before. */
  after?: string;
  /** How many messages one page looks at. From 1 to 10,000. Default 1000. */
  limit?: number;
}

export type SentMessage = Pick<Message, "id" | "position" | "stream" | "type" | "key" | "createdAt">;

/** A page of a relay's log, in order within a key. It may be empty though others follow. */
export interface SentPage {
  messages: SentMessage[];
  /** Where the next page begins; null: this was the last. */
  next: string | null;
  /** What was enqueued before this time may have been dropped; null: nothing ever was. */
  keptSince: Date | null;
}

/** Messages of which the receipts are wanted, at most 1,000; their time tells whether a receipt could be there still. */
export interface ReceiptQuery {
  consumer: string;
  messages: readonly Pick<SentMessage, "id" | "createdAt">[];
}

/**
 * What a consumer knows of a message. `expired`: there is no receipt, and if there was one, its time was over. With
 * receipts per source it is the one of the source that got furthest.
 */
export interface ReceiptInfo {
  status: ReceiptStatus | "none" | "expired";
  receivedAt: Date | null;
  processedAt: Date | null;
  attempts: number;
  lastError: string | null;
}

export type RewindTarget = "earliest" | "now" | { position: bigint } | { time: Date };

/**
 * What people and tools see and change. Changes to dead letters are commands that the lane's owner carries out. Every
 * argument is checked: a field that is unknown, undefined or of another type is refused with `invalid_option`.
 */
export interface Admin {
  find(query: MessageQuery): Promise<MessageInfo[]>;
  /** Messages page by page, newest first. A page costs about the same however long the log is. */
  search(query: MessageSearch): Promise<MessagePage>;
  /**
   * The open messages of a key, oldest first: the one that fails in front and what waits behind it. A dead letter that
   * holds the key is not among them. Of messages that the relay has not read yet, the first 10,000 are looked at.
   */
  waiting(query: WaitingQuery): Promise<MessageInfo[]>;
  relays(): Promise<RelayInfo[]>;
  /** Relays and everything else that monitoring needs, seen at one moment. */
  figures(): Promise<StoreFigures>;
  samples(query: SampleQuery): Promise<Sample[]>;
  blocked(query: BlockedQuery): Promise<BlockedKey[]>;
  pause(relay: string): Promise<void>;
  resume(relay: string): Promise<void>;
  rewind(relay: string, target: RewindTarget): Promise<void>;
  /** What `rewind` would send again. Refused where it would be. */
  rewindPreview(relay: string, target: RewindTarget): Promise<RewindPreview>;
  drop(relay: string): Promise<void>;
  dead(query: DeadQuery): Promise<DeadLetter[]>;
  deadGroups(query: DeadGroupQuery): Promise<DeadGroup[]>;
  /**
   * Brings dead letters back, in order within a key; how many. Large numbers are written in parts, oldest first, each part
   * for good: `onProgress` hears after each how many there are so far.
   */
  requeue(choice: DeadChoice, onProgress?: (count: number) => void): Promise<number>;
  /** Gives dead letters up; written like `requeue`. */
  discard(choice: DeadChoice, onProgress?: (count: number) => void): Promise<number>;
  /**
   * Gives a dead letter other contents, with which it is delivered once it is requeued, at every attempt from then on. Its
   * id, key, stream, type and position stay. Refused with `conflict` while a command waits for it, or while a process of
   * the relay runs that knows nothing of edits.
   */
  edit(letter: LetterName, change: LetterEdit): Promise<void>;
  /** A dead letter as it was enqueued, whatever it was made into; null: there is none. */
  original(letter: LetterName): Promise<Message | null>;
  /** The same admin, whose changes are noted under this name. */
  by(author: Author): Admin;
  /** Notes that a redrive was stopped: it runs outside the store, and what it has requeued stays so. */
  noteStop(redrive: StoppedRedrive): Promise<void>;
  /** What was changed through an admin, and by whom. Each is written together with the change itself. */
  changes(query: ChangeQuery): Promise<ChangePage>;
  /**
   * What a relay has published, page by page, in order within a key. What it has not published yet, or was told to skip,
   * may be among it: `find` tells.
   */
  sent(query: SentQuery): Promise<SentPage>;
  /** What a consumer of this store knows of messages, of whichever store: one answer for each, in order. */
  receipts(query: ReceiptQuery): Promise<ReceiptInfo[]>;
  /** The receipts that all consumers of this store have of these messages (1 to 1,000), by message and consumer. */
  receiptsOf(messages: ReceiptQuery["messages"]): Promise<MessageReceipt[]>;
  /** Consumers with receipts in this store or samples of this day, by name. */
  consumers(): Promise<ConsumerInfo[]>;
}

// ── Finding what is wrong ───────────────────────────────────────────────────────────────────────────────────────

/** `error`: messages are lost, late or stopped, or will be soon. `warning`: it will hurt. `info`: good to know. */
export type Severity = "error" | "warning" | "info";

/** Something that is wrong, what comes of it, and what to do: a command or a statement to run. */
export interface Symptom {
  severity: Severity;
  finding: string;
  consequence: string;
  fix: string;
}

/** One thing that the doctor looks at. It changes nothing; what it throws means that it could not look. */
export interface HealthCheck {
  /** Stable, for metrics and scripts. */
  readonly name: string;
  /** What it looks at, in a few words. */
  readonly looksAt: string;
  /** Whether the tables of txbox have to be there. */
  readonly needs: "server" | "tables";
  run(): Promise<readonly Symptom[]>;
}
