import type { MessageInfo, MessagePage, MessageSearch, Store } from "../core/contracts.ts";
import { PageFailure } from "./page-failure.ts";

/** Where a search goes on in a store: the next page of each guess that has one; `FROM_THE_BEGINNING`: its first. */
export type GuessPlaces = Readonly<Record<string, string>>;

export interface GuessedPage {
  readonly messages: MessageInfo[];
  /** Null: nothing is left. */
  readonly next: GuessPlaces | null;
  readonly lookedBackTo: Date | null;
}

interface Guess {
  readonly name: string;
  readonly fields: MessageSearch;
  /** Tells whether this guess finds a message. */
  finds(message: MessageInfo): boolean;
}

const FROM_THE_BEGINNING = "";
/** The guess of a search without a word. */
const FILTERS = "filters";
const TYPE = "type";

/**
 * A word of the search box may be anything: every index is asked, and when none knows it, it may be a type. A message
 * that several guesses find is shown by the first of them.
 */
export async function guessedSearch(
  store: Store,
  word: string | undefined,
  filters: MessageSearch,
  places: GuessPlaces | null,
): Promise<GuessedPage> {
  const text = word?.trim() ?? "";
  const guesses = text === "" ? [{ name: FILTERS, fields: {}, finds: () => false }] : guessesOf(text, filters);
  const left = places ?? Object.fromEntries(guesses.map(({ name }) => [name, FROM_THE_BEGINNING]));
  if (Object.keys(left).some((name) => !guesses.some((guess) => guess.name === name)))
    throw new PageFailure(400, "after is no place of this search");
  const messages: MessageInfo[] = [];
  const next: Record<string, string> = {};
  const looked: (Date | null)[] = [];
  const ask = async ({ name, fields }: Guess, shown: readonly Guess[]): Promise<void> => {
    const after = left[name];
    const place = after === FROM_THE_BEGINNING ? {} : { after: after! };
    const page: MessagePage = await store.admin.search({ ...filters, ...fields, ...place });
    messages.push(...page.messages.filter((message) => !shown.some((guess) => guess.finds(message))));
    if (page.next !== null) next[name] = page.next;
    looked.push(page.lookedBackTo);
  };
  const asked = guesses.filter(({ name }) => name in left);
  const indexed = asked.filter(({ name }) => name !== TYPE);
  for (const guess of indexed) await ask(guess, guesses.slice(0, guesses.indexOf(guess)));
  const type = asked.find(({ name }) => name === TYPE);
  // While an index has not been looked through, the word may still be found there.
  if (type !== undefined && messages.length === 0) {
    if (Object.keys(next).length === 0) await ask(type, []);
    else next[TYPE] = left[TYPE]!;
  }
  const times = looked.flatMap((at) => (at === null ? [] : [at.getTime()]));
  return {
    messages,
    next: Object.keys(next).length === 0 ? null : next,
    lookedBackTo: times.length === 0 ? null : new Date(Math.max(...times)),
  };
}

/** What a word may be. A filter that says otherwise rules a guess out. */
function guessesOf(text: string, filters: MessageSearch): Guess[] {
  const guesses: Guess[] = [
    { name: "id", fields: { id: text }, finds: ({ id }) => id === text },
    { name: "key", fields: { key: text }, finds: ({ key }) => key === text },
    {
      name: "correlation",
      fields: { correlationId: text },
      finds: ({ id, headers }) => (headers.correlationId ?? id) === text,
    },
    aggregateGuess("aggregate", aggregateFilter(text)),
  ];
  if (text.includes(":")) guesses.push(aggregateGuess("aggregateId", { aggregateId: text }));
  guesses.push({ name: TYPE, fields: { type: text }, finds: ({ type }) => type === text });
  const given: Readonly<Record<string, unknown>> = { ...filters };
  return guesses.filter(({ fields }) =>
    Object.entries(fields).every(([field, value]) => given[field] === undefined || given[field] === value),
  );
}

function aggregateGuess(name: string, fields: Pick<MessageSearch, "aggregateType" | "aggregateId">): Guess {
  const { aggregateType: type, aggregateId: id } = fields;
  return {
    name,
    fields,
    finds: ({ aggregateType, aggregateId }) => aggregateId === id && (type === undefined || aggregateType === type),
  };
}

/** `order:4711`, or the id alone. */
export function aggregateFilter(text: string): Pick<MessageSearch, "aggregateType" | "aggregateId"> {
  const colon = text.indexOf(":");
  if (colon <= 0 || colon === text.length - 1) return { aggregateId: text };
  return { aggregateType: text.slice(0, colon), aggregateId: text.slice(colon + 1) };
}
