import { isDate } from "node:util/types";
import type {
  Admin,
  Author,
  BlockedPlace,
  BlockedQuery,
  ChangeQuery,
  DeadChoice,
  DeadFilter,
  DeadGroupQuery,
  DeadPlace,
  DeadQuery,
  LetterEdit,
  LetterName,
  MessageQuery,
  MessageSearch,
  ReceiptQuery,
  RewindTarget,
  SampleQuery,
  SentQuery,
  StoppedRedrive,
  WaitingQuery,
} from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { nearest } from "../../core/options.ts";
import { requirePlaceOf } from "./search-place.ts";

/** No field that can be asked for is longer. */
const MAX_TEXT_BYTES = 4096;
const MAX_POSITION = 2n ** 63n - 1n;
/** Every letter or message of a page is in memory at once. */
const MAX_PAGE = 10_000;
/** Of a page whose messages come with all that is known of them. */
const MAX_SEARCH_PAGE = 1000;
export const DEFAULT_PAGE = 100;

/** Times that every database can read: from the year 1 to the year 9999. */
const [FIRST_TIME, LAST_TIME] = [Date.parse("0001-01-01T00:00:00Z"), Date.parse("9999-12-31T23:59:59Z")];

/** Takes a value from outside and gives it back as what it is said to be, or throws. */
type Check = (of: string, field: string, value: unknown) => unknown;

const text: Check = (of, field, value) => {
  if (value === "") throw invalid(of, field, "is empty", `Give ${field} a value, or leave it out`);
  return anyText(of, field, value);
};

/** What a letter says of itself: a field may be empty where its document was edited by hand. */
const anyText: Check = (of, field, value) => {
  if (typeof value !== "string") throw wrong(of, field, value, "a text");
  if (Buffer.byteLength(value) > MAX_TEXT_BYTES)
    throw invalid(of, field, `has more than ${MAX_TEXT_BYTES} bytes`, "Nothing that is stored has one as long as that");
  if (value.includes("\0")) throw invalid(of, field, "has a NUL character", "Remove it: databases cannot store it");
  if (!value.isWellFormed())
    throw invalid(of, field, "has half of a surrogate pair", "Cut texts between characters, or call toWellFormed()");
  return value;
};

const position: Check = (of, field, value) => {
  if (typeof value === "bigint" && value >= 0n && value <= MAX_POSITION) return value;
  throw wrong(of, field, value, "a bigint such as 42n");
};

const wholeNumber =
  (max: number): Check =>
  (of, field, value) => {
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= max) return value;
    throw wrong(of, field, value, `a whole number from 1 to ${max}`);
  };

const oneOf =
  (...choices: readonly unknown[]): Check =>
  (of, field, value) => {
    if (choices.includes(value)) return value;
    throw wrong(of, field, value, choices.map((choice) => JSON.stringify(choice)).join(" or "));
  };

const time: Check = (of, field, value) => {
  if (isDate(value) && value.getTime() >= FIRST_TIME && value.getTime() <= LAST_TIME) return new Date(value.getTime());
  throw wrong(of, field, value, "a valid Date from the year 1 to the year 9999");
};

const place: Check = (of, field, value) => {
  if (typeof value !== "object" || value === null) throw wrong(of, field, value, "a letter of the page before");
  const letter = value as Partial<Record<keyof DeadPlace, unknown>>;
  return {
    position: position(of, `${field}.position`, letter.position),
    relay: anyText(of, `${field}.relay`, letter.relay),
    stream: anyText(of, `${field}.stream`, letter.stream),
    id: anyText(of, `${field}.id`, letter.id),
  };
};

const blockedPlace: Check = (of, field, value) => {
  if (typeof value !== "object" || value === null) throw wrong(of, field, value, "a key of the page before");
  const place = value as Partial<Record<keyof BlockedPlace, unknown>>;
  return {
    relay: anyText(of, `${field}.relay`, place.relay),
    stream: anyText(of, `${field}.stream`, place.stream),
    key: place.key === null ? null : anyText(of, `${field}.key`, place.key),
    lane: place.lane === 0 ? 0 : wholeNumber(63)(of, `${field}.lane`, place.lane),
    position: place.position === null ? null : position(of, `${field}.position`, place.position),
  };
};

type Checks<T> = { readonly [Field in keyof T]-?: Check };

/** As many as one statement takes without harm. */
const MAX_LIST = 1000;

const listOf =
  (check: Check): Check =>
  (of, field, value) => {
    if (!Array.isArray(value)) throw wrong(of, field, value, "an array");
    if (value.length === 0 || value.length > MAX_LIST)
      throw invalid(of, field, `has ${value.length} entries`, `Give it from 1 to ${MAX_LIST}`);
    return value.map((item: unknown, i) => check(of, `${field}[${i}]`, item));
  };

const datedId: Check = (of, field, value) => {
  if (typeof value !== "object" || value === null) throw wrong(of, field, value, "a message with its id and createdAt");
  const message = value as { id?: unknown; createdAt?: unknown };
  return { id: text(of, `${field}.id`, message.id), createdAt: time(of, `${field}.createdAt`, message.createdAt) };
};

const MESSAGE_QUERY: Checks<MessageQuery> = {
  id: text,
  ids: listOf(text),
  stream: text,
  key: text,
  aggregateType: text,
  aggregateId: text,
  correlationId: text,
  relay: text,
  limit: wholeNumber(MAX_PAGE),
  contents: oneOf(true, false),
};

const group: Check = (of, field, value) => {
  if (typeof value === "string" && /^[\da-f]{12}$/.test(value)) return value;
  throw wrong(of, field, value, "the group of a dead letter, such as 0f3a9c41d2e7");
};

const DEAD_FILTER: Checks<DeadFilter> = {
  relay: text,
  id: text,
  position,
  stream: text,
  type: text,
  key: text,
  group,
};

const DEAD_GROUP_QUERY: Checks<DeadGroupQuery> = {
  relay: text,
  stream: text,
  type: text,
  limit: wholeNumber(MAX_LIST),
};

const MESSAGE_SEARCH: Checks<MessageSearch> = {
  id: text,
  key: text,
  aggregateType: text,
  aggregateId: text,
  correlationId: text,
  stream: text,
  type: text,
  status: oneOf("scheduled", "pending", "processing", "published", "retrying", "dead"),
  relay: text,
  since: time,
  until: time,
  after: text,
  limit: wholeNumber(MAX_SEARCH_PAGE),
  contents: oneOf(true, false),
};

const WAITING_QUERY: Checks<WaitingQuery> = {
  relay: text,
  stream: text,
  key: text,
  after: position,
  limit: wholeNumber(MAX_SEARCH_PAGE),
  contents: oneOf(true, false),
};

const DEAD_QUERY: Checks<DeadQuery> = {
  ...DEAD_FILTER,
  state: oneOf("dead", "requeued", "discarded"),
  after: place,
  limit: wholeNumber(MAX_PAGE),
  contents: oneOf(true, false),
};

const BLOCKED_QUERY: Checks<BlockedQuery> = {
  relay: text,
  stream: text,
  key: text,
  after: blockedPlace,
  limit: wholeNumber(MAX_PAGE),
};

const SAMPLE_QUERY: Checks<SampleQuery> = { relay: text, consumer: text, since: time, until: time };

const SENT_QUERY: Checks<SentQuery> = {
  relay: text,
  since: time,
  until: time,
  streams: listOf(text),
  types: listOf(text),
  after: text,
  limit: wholeNumber(MAX_PAGE),
};

const RECEIPT_QUERY: Checks<ReceiptQuery> = { consumer: text, messages: listOf(datedId) };

const DEAD_CHOICE: Checks<DeadChoice> = {
  ...DEAD_FILTER,
  all: oneOf(true),
  letters: listOf(place),
  limit: wholeNumber(Number.MAX_SAFE_INTEGER),
};

const LETTER: Checks<LetterName> = { relay: text, id: text, position };

/** Looked at with the letter, whose headers say what they have to be. */
const anything: Check = (_, __, value) => value;
const EDIT: Checks<LetterEdit> = { payload: anything, body: anything, headers: anything };

/** Long enough for people to say who they are and why, and no longer: these texts are shown in lists. */
const saying =
  (most: number): Check =>
  (of, field, value) => {
    const said = text(of, field, value) as string;
    if (said.length <= most) return said;
    throw invalid(of, field, `has ${said.length} characters`, `Give it at most ${most}`);
  };
const AUTHOR: Checks<Author> = { actor: saying(200), reason: saying(1000), redrive: saying(100) };

const STOPPED_REDRIVE: Checks<StoppedRedrive> = {
  relay: text,
  what: saying(10_000),
  requeued: (of, field, value) => (value === 0 ? 0 : wholeNumber(Number.MAX_SAFE_INTEGER)(of, field, value)),
};

const changePlace: Check = (of, field, value) => {
  if (typeof value === "string" && /^[\da-f]{1,40}$/.test(value)) return value;
  throw wrong(of, field, value, "`next` of the page before");
};
const CHANGE_QUERY: Checks<ChangeQuery> = {
  since: time,
  relay: text,
  after: changePlace,
  limit: wholeNumber(MAX_LIST),
};

/**
 * An admin that lets only checked values through, as copies: whatever a caller passes on from a request or a mistyped
 * object is refused, instead of meaning something else to the database or nothing at all.
 */
export function checkedAdmin(admin: Admin): Admin {
  return {
    find: async (query) => admin.find(fields("admin.find", query, MESSAGE_QUERY)),
    search: async (query) => admin.search(messageSearch(query)),
    waiting: async (query) =>
      admin.waiting(required("admin.waiting", query, WAITING_QUERY, ["relay", "stream", "key"])),
    relays: () => admin.relays(),
    figures: () => admin.figures(),
    samples: async (query) => admin.samples(sampleQuery(query)),
    blocked: async (query) => admin.blocked(fields("admin.blocked", query, BLOCKED_QUERY)),
    pause: async (relay) => admin.pause(relayName("admin.pause", relay)),
    resume: async (relay) => admin.resume(relayName("admin.resume", relay)),
    rewind: async (relay, target) =>
      admin.rewind(relayName("admin.rewind", relay), rewindTarget("admin.rewind", target)),
    rewindPreview: async (relay, target) =>
      admin.rewindPreview(relayName("admin.rewindPreview", relay), rewindTarget("admin.rewindPreview", target)),
    drop: async (relay) => admin.drop(relayName("admin.drop", relay)),
    dead: async (query) => admin.dead(fields("admin.dead", query, DEAD_QUERY)),
    deadGroups: async (query) => admin.deadGroups(fields("admin.deadGroups", query, DEAD_GROUP_QUERY)),
    requeue: async (choice, onProgress) =>
      admin.requeue(deadChoice("admin.requeue", choice), progressOf("admin.requeue", onProgress)),
    discard: async (choice, onProgress) =>
      admin.discard(deadChoice("admin.discard", choice), progressOf("admin.discard", onProgress)),
    edit: async (letter, change) => admin.edit(letterName("admin.edit", letter), letterEdit(change)),
    original: async (letter) => admin.original(letterName("admin.original", letter)),
    by: (author) => checkedAdmin(admin.by(authorOf(author))),
    noteStop: async (redrive) =>
      admin.noteStop(required("admin.noteStop", redrive, STOPPED_REDRIVE, ["what", "requeued"])),
    changes: async (query) => admin.changes(fields("admin.changes", query, CHANGE_QUERY)),
    sent: async (query) => admin.sent(required("admin.sent", query, SENT_QUERY, ["relay", "since", "until"])),
    receipts: async (query) =>
      admin.receipts(required("admin.receipts", query, RECEIPT_QUERY, ["consumer", "messages"])),
    receiptsOf: async (messages) =>
      admin.receiptsOf(listOf(datedId)("admin.receiptsOf", "messages", messages) as ReceiptQuery["messages"]),
    consumers: () => admin.consumers(),
  };
}

/** The same, where some fields must be there. */
function required<T extends object>(of: string, given: T, checks: Checks<T>, needed: readonly (keyof T & string)[]): T {
  const checked = fields(of, given, checks);
  const missing = needed.find((field) => !(field in checked));
  if (missing !== undefined) throw invalid(of, missing, "is missing", `Give ${missing} a value`);
  return checked;
}

export function conflict(message: string, fix: string): TxboxError {
  return new TxboxError("conflict", message, { fix });
}

/** What a store gave out as the place of the next page, taken apart; another text is refused. */
export function pagePlace(after: string, form: RegExp): string[] {
  const parts = form.exec(after);
  if (parts === null) throw wrong("admin.sent", "after", after, "`next` of the page before");
  return parts.slice(1);
}

/** A copy of the fields, each of them checked. A field that is there has a value: undefined is not "left out". */
function fields<T extends object>(of: string, given: unknown, checks: Checks<T>): T {
  const known = Object.keys(checks);
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new TxboxError("invalid_option", `${of} takes an object, got ${named(given)}`, {
      fix: `Its fields are ${known.join(", ")}`,
    });
  }
  const checked: Record<string, unknown> = {};
  for (const field of Reflect.ownKeys(given)) {
    if (typeof field === "symbol" || !known.includes(field)) {
      const near = typeof field === "symbol" ? undefined : nearest(field, known);
      throw new TxboxError("invalid_option", `${of} has no field "${String(field)}"`, {
        field: String(field),
        fix: near === undefined ? `Its fields are ${known.join(", ")}` : `Did you mean "${near}"?`,
      });
    }
    const value = (given as Record<string, unknown>)[field];
    checked[field] = checks[field as keyof T](of, field, value);
  }
  return checked as T;
}

function authorOf(given: Author): Author {
  const author = fields<Author>("admin.by", given, AUTHOR);
  if (Object.keys(author).length === 0)
    throw invalid("admin.by", "actor", "is missing", "Say who it is, such as a name or an address");
  return author;
}

function letterName(of: string, given: LetterName): LetterName {
  const letter = required(of, given, LETTER, ["relay"]);
  if (letter.id === undefined && letter.position === undefined)
    throw invalid(of, "id", "is missing", "Give the letter's id or its position");
  return letter;
}

/** What a letter is found by in the order of its key, and by whom, is not for an edit to change. */
const STAYING: ReadonlySet<string> = new Set([
  "id",
  "key",
  "stream",
  "type",
  "position",
  "aggregateId",
  "aggregateType",
  "createdAt",
]);

function letterEdit(given: unknown): LetterEdit {
  const of = "admin.edit";
  for (const field of typeof given === "object" && given !== null ? Object.keys(given) : [])
    if (STAYING.has(field))
      throw invalid(of, field, "cannot be edited", "Change the payload and headers; or discard it and enqueue another");
  const edit = fields<LetterEdit>(of, given, EDIT);
  if (Object.keys(edit).length === 0)
    throw invalid(of, "payload", "is missing, and so are body and headers", "Give what should be changed");
  if ("payload" in edit && "body" in edit)
    throw invalid(of, "body", "contradicts payload", "Give one of them: payload is encoded, body is taken as it is");
  return edit;
}

/** Which letters are meant: a choice that says nothing, or two things at once, is refused. */
export function deadChoice(of: string, given: unknown): DeadChoice {
  const choice = fields(of, given, DEAD_CHOICE);
  const filters = [...Object.keys(DEAD_FILTER), "letters"].filter((field) => field in choice);
  if (choice.all === true && filters.some((field) => field !== "relay"))
    throw invalid(of, "all", `contradicts ${filters.join(", ")}`, "Give a filter or all: true, not both");
  if (choice.all !== true && filters.length === 0) {
    throw new TxboxError("invalid_option", `${of}: which dead letters? Nothing was chosen`, {
      field: "all",
      fix: `Give ${Object.keys(DEAD_FILTER).join(", ")}, or say { all: true }`,
    });
  }
  return choice;
}

function sampleQuery(given: unknown): SampleQuery {
  const of = "admin.samples";
  const query = fields(of, given, SAMPLE_QUERY);
  if (!("since" in query))
    throw invalid(of, "since", "is missing", "Give since: new Date(Date.now() - 3_600_000), for an hour");
  if (query.relay !== undefined && query.consumer !== undefined)
    throw invalid(of, "consumer", "contradicts relay", "Give one of them, or neither for all");
  return query;
}

function messageSearch(given: unknown): MessageSearch {
  const of = "admin.search";
  const query = fields(of, given, MESSAGE_SEARCH);
  const { since, until } = query;
  if (since !== undefined && until !== undefined && since >= until)
    throw invalid(of, "until", "is not after since", "Give until a later time, or leave it out");
  requirePlaceOf(query);
  return query;
}

function rewindTarget(of: string, target: unknown): RewindTarget {
  if (target === "earliest" || target === "now") return target;
  const choices = '"earliest", "now", { position: 42n } or { time: new Date(…) }';
  if (typeof target !== "object" || target === null || Array.isArray(target))
    throw wrong(of, "target", target, choices);
  const point = fields<{ position?: bigint; time?: Date }>(of, target, { position, time });
  if (Object.keys(point).length !== 1) throw invalid(of, "target", "is not one point", `Give ${choices}`);
  return point as RewindTarget;
}

function relayName(of: string, relay: unknown): string {
  return text(of, "relay", relay) as string;
}

function progressOf(of: string, onProgress: unknown): ((count: number) => void) | undefined {
  if (onProgress === undefined || typeof onProgress === "function")
    return onProgress as ((count: number) => void) | undefined;
  throw wrong(of, "onProgress", onProgress, "a function");
}

function wrong(of: string, field: string, value: unknown, wanted: string): TxboxError {
  const left = value === undefined ? `, or leave it out` : "";
  return invalid(of, field, `must be ${wanted}, got ${named(value)}`, `Give ${field} such a value${left}`);
}

function invalid(of: string, field: string, what: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${of}: ${field} ${what}`, { field, fix });
}

function named(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  return typeof value === "number" || typeof value === "bigint" ? String(value) : typeof value;
}
