import type { MessageInfo, MessagePage, MessageSearch } from "../../core/contracts.ts";
import { DEFAULT_PAGE } from "./checked-admin.ts";
import { noPlace, readPlace, writePlace } from "./search-place.ts";

/** Messages that may be wanted, in the order of their part of the store. */
export interface Chunk {
  /** What they are found by again. */
  readonly refs: readonly string[];
  /** What comes next lies behind this ref. */
  readonly after: string;
  /** How many were looked at for them. */
  readonly seen: number;
  /** When the last one that was looked at was enqueued; undefined when it is not known. */
  readonly lastAt: Date | undefined;
  /** Nothing is left in this part. */
  readonly isLast: boolean;
}

/** What is left of a page. */
export interface Budget {
  /** So many messages may be looked at. */
  readonly sight: number;
  /** So many at most are wanted at once. */
  readonly part: number;
}

/** A part of the store in which messages are looked for. */
export interface SearchPart {
  readonly name: string;
  /** Its messages come newest first, so that the time of one tells how far it was looked at. */
  readonly newestFirst: boolean;
  isRef(text: string): boolean;
  refOf(message: MessageInfo): string;
  /** The next that may be wanted, after this ref; undefined: there is nothing. */
  next(after: string | undefined, budget: Budget): Promise<Chunk | undefined>;
  /** Those of them that are wanted, in the same order, each with all of its relays. */
  read(refs: readonly string[]): Promise<MessageInfo[]>;
}

/** A page reads so many messages to find out what became of them. */
const READ = 2000;
/** As many at once where not all that are read are wanted. */
const PART = 500;
/** A page ends once its messages have so many bytes, and so many messages are read before it is known how large they are. */
const [MOST_BYTES, UNKNOWN] = [16_000_000, 50];
/** What is found soon need not be looked for far: so many messages are looked at first, then twice as many, and so on. */
const FIRST_LOOK = 1000;

/**
 * A page of a search through the parts of a store, one after the other, that looks at so many messages. It ends when it is full, or when its budget is
 * used up: then it says how far it came. One message more than has room is looked for, so that the last page knows it is.
 */
export async function searchPage(
  query: MessageSearch,
  parts: readonly SearchPart[],
  lookedAt: number,
): Promise<MessagePage> {
  const place = readPlace(query);
  const from = place === undefined ? 0 : parts.findIndex(({ name }) => name === place.part);
  if (from === -1 || (place?.after != null && !parts[from]!.isRef(place.after)))
    throw noPlace("is not `next` of a page");
  const messages: MessageInfo[] = [];
  let [room, sight, left] = [query.limit ?? DEFAULT_PAGE, lookedAt, READ];
  let lookedBackTo: Date | null = null;
  let look = FIRST_LOOK;
  let [bytes, read] = [0, 0];
  const endAt = (part: SearchPart, after: string | undefined): MessagePage => {
    const next = writePlace(query, { part: part.name, after: after ?? null });
    return { messages, next, lookedBackTo };
  };
  let after = place?.after ?? undefined;
  for (const part of parts.slice(from)) {
    for (;;) {
      if (sight <= 0 || left <= 0) return endAt(part, after);
      const wanted = query.status === undefined && query.relay === undefined ? room + 1 : Math.max(PART, room + 1);
      const chunk = await part.next(after, { sight: Math.min(sight, look), part: Math.min(wanted, left) });
      look *= 2;
      if (chunk === undefined) break;
      sight -= Math.max(1, chunk.seen);
      left -= chunk.refs.length;
      let ref: string | undefined;
      for (let at = 0; at < chunk.refs.length;) {
        const most =
          bytes === 0 ? Math.max(UNKNOWN, 3 * read) : Math.max(1, Math.floor(((MOST_BYTES - bytes) * read) / bytes));
        const refs = query.contents === false ? chunk.refs : chunk.refs.slice(at, at + most);
        for (const message of await part.read(refs)) {
          if (ref !== part.refOf(message)) {
            if (room === 0 || bytes >= MOST_BYTES) return endAt(part, after);
            room--;
            after = ref = part.refOf(message);
            if (part.newestFirst) lookedBackTo = message.createdAt;
          }
          bytes += message.body.length;
          messages.push(message);
        }
        at += refs.length;
        read += refs.length;
      }
      if (chunk.isLast) break;
      after = chunk.after;
      if (part.newestFirst) lookedBackTo = chunk.lastAt ?? lookedBackTo;
    }
    after = undefined;
    lookedBackTo = null;
  }
  return { messages, next: null, lookedBackTo: null };
}
