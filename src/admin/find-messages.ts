import type { MessageInfo, MessagePage, MessageSearch, MessageStatus, Store } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
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

/** Messages of one store or of all, newest first. A store that is down is named and holds up no other. */
export async function findMessages(
  stores: readonly (readonly [name: string, store: Store])[],
  query: PageQuery,
): Promise<MessagesAnswer> {
  const limit = query.integer("limit", { min: 1, max: 500, fallback: 100 });
  const filters = filtersOf(query);
  const places = placesOf(query.text("after"));
  const answer: MessagesAnswer = { messages: [], next: null, lookedBackTo: null, missing: [] };
  const next: Record<string, string> = {};
  const asked = stores.filter(([name]) => places === undefined || places[name] !== undefined);
  await Promise.all(
    asked.map(async ([name, store]) => {
      try {
        const after = places?.[name];
        const page = await search(store, query.text("q"), {
          ...filters,
          limit,
          ...(after === undefined ? {} : { after }),
        });
        answer.messages.push(...page.messages.map((message) => messageView(name, message)));
        if (page.next !== null) next[name] = page.next;
        const back = page.lookedBackTo?.getTime() ?? null;
        if (back !== null) answer.lookedBackTo = Math.max(back, answer.lookedBackTo ?? 0);
      } catch (error) {
        if (asked.length === 1) throw error;
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

/** `order:4711`, or the id alone. */
function aggregateFilter(text: string): Pick<MessageSearch, "aggregateType" | "aggregateId"> {
  const colon = text.indexOf(":");
  if (colon <= 0 || colon === text.length - 1) return { aggregateId: text };
  return { aggregateType: text.slice(0, colon), aggregateId: text.slice(colon + 1) };
}

/** A word of the search box may be anything: every index is asked, and when none knows it, it may be a type. */
async function search(store: Store, word: string | undefined, filters: MessageSearch): Promise<MessagePage> {
  const text = word?.trim() ?? "";
  if (text === "") return store.admin.search(filters);
  const { after: _, ...first } = filters;
  const guesses: MessageSearch[] = [{ id: text }, { key: text }, { correlationId: text }, aggregateFilter(text)];
  if (text.includes(":")) guesses.push({ aggregateId: text });
  const found = new Map<string, MessageInfo>();
  for (const guess of guesses) {
    const { messages } = await store.admin.search({ ...first, ...guess });
    for (const message of messages) found.set(JSON.stringify([message.id, message.relay]), message);
  }
  if (found.size === 0) return store.admin.search({ ...filters, type: text });
  return { messages: [...found.values()], next: null, lookedBackTo: null };
}

function placesOf(after: string | undefined): Readonly<Record<string, string>> | undefined {
  if (after === undefined) return undefined;
  try {
    const places: unknown = JSON.parse(Buffer.from(after, "base64url").toString());
    if (typeof places === "object" && places !== null) {
      const texts = Object.entries(places).filter((entry): entry is [string, string] => typeof entry[1] === "string");
      return Object.fromEntries(texts);
    }
  } catch {
    // Said below.
  }
  throw new PageFailure(400, "after is no place of a page before", { fix: "Use `next` of the answer before" });
}
