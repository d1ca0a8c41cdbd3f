import type { MessageSearch, MessageStatus, Store } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { aggregateFilter, type GuessPlaces, guessedSearch } from "./guessed-search.ts";
import type { MessagesAnswer } from "./page-api.ts";
import { messageView } from "./message-views.ts";
import { PageFailure } from "./page-failure.ts";
import type { PageQuery } from "./page-query.ts";
import { errorText } from "./shown-text.ts";

export const SEARCH_FIELDS = [
  "q",
  "store",
  "id",
  "key",
  "aggregate",
  "correlation",
  "stream",
  "type",
  "status",
  "relay",
  "since",
  "until",
  "after",
  "limit",
] as const;

const STATUSES: readonly MessageStatus[] = ["scheduled", "pending", "processing", "published", "retrying", "dead"];

/** Whether an index finds it; otherwise the store looks page by page. */
export function isIndexed(query: PageQuery): boolean {
  return ["id", "key", "aggregate", "correlation"].some((name) => query.text(name) !== undefined);
}

/**
 * Messages of one store or of all, newest first. A store that is down is named and holds up no other; the next page asks
 * it again.
 */
export async function findMessages(
  stores: readonly (readonly [name: string, store: Store])[],
  query: PageQuery,
): Promise<MessagesAnswer> {
  const limit = query.integer("limit", { min: 1, max: 500, fallback: 100 });
  const filters = { ...filtersOf(query), limit, contents: false };
  const word = query.text("q");
  const places = placesOf(query.text("after"));
  const answer: MessagesAnswer = { messages: [], next: null, lookedBackTo: null, missing: [] };
  const next: Record<string, GuessPlaces | null> = {};
  const asked = stores.filter(([name]) => places === undefined || Object.hasOwn(places, name));
  await Promise.all(
    asked.map(async ([name, store]) => {
      const place = places?.[name] ?? null;
      try {
        const page = await guessedSearch(store, word, filters, place);
        answer.messages.push(...page.messages.map((message) => messageView(name, message)));
        if (page.next !== null) next[name] = page.next;
        const back = page.lookedBackTo?.getTime() ?? null;
        if (back !== null) answer.lookedBackTo = Math.max(back, answer.lookedBackTo ?? 0);
      } catch (error) {
        if (asked.length === 1 || error instanceof PageFailure) throw error;
        next[name] = place;
        answer.missing.push({ store: name, error: errorText(describeError(error)) });
      }
    }),
  );
  answer.messages.sort((a, b) => b.createdAt - a.createdAt);
  if (Object.keys(next).length > 0) answer.next = Buffer.from(JSON.stringify(next)).toString("base64url");
  return answer;
}

function filtersOf(query: PageQuery): MessageSearch {
  const {
    aggregate,
    correlation,
    since: _s,
    until: _u,
    status,
    ...plain
  } = query.some("id", "key", "aggregate", "correlation", "stream", "type", "status", "relay", "since", "until");
  if (status !== undefined && !STATUSES.includes(status as MessageStatus))
    throw new PageFailure(400, "There is no such status", { fix: `There are ${STATUSES.join(", ")}` });
  const [since, until] = [query.time("since"), query.time("until")];
  return {
    ...plain,
    ...(aggregate === undefined ? {} : aggregateFilter(aggregate)),
    ...(correlation === undefined ? {} : { correlationId: correlation }),
    ...(status === undefined ? {} : { status: status as MessageStatus }),
    ...(since === undefined ? {} : { since }),
    ...(until === undefined ? {} : { until }),
  };
}

type Places = Readonly<Record<string, GuessPlaces | null>>;

/** The stores that have more, and where each goes on; null: at its beginning, because it gave no answer yet. */
function placesOf(after: string | undefined): Places | undefined {
  if (after === undefined) return undefined;
  try {
    const places: unknown = JSON.parse(Buffer.from(after, "base64url").toString());
    if (isRecord(places) && Object.values(places).every((place) => place === null || isTexts(place)))
      return places as Places;
  } catch {
    // Said below.
  }
  throw new PageFailure(400, "after is no place of a page before");
}

function isTexts(value: unknown): boolean {
  return isRecord(value) && Object.values(value).every((text) => typeof text === "string");
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
