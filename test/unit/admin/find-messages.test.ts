import { describe, expect, test } from "vitest";
import type { MessageInfo, MessagePage, MessageSearch, Store } from "../../../src/core/contracts.ts";
import { findMessages, SEARCH_FIELDS } from "../../../src/admin/find-messages.ts";
import { PageQuery } from "../../../src/admin/page-query.ts";

interface Sample {
  id: string;
  key?: string;
  type?: string;
  aggregateType?: string;
  aggregateId?: string;
  correlationId?: string;
}

/** A store of these messages, the newest first, of which a page looks at `sight`. */
function storeOf(samples: readonly Sample[], sight = Number.POSITIVE_INFINITY) {
  const state = { isDown: false, searches: [] as MessageSearch[] };
  const search = async (query: MessageSearch): Promise<MessagePage> => {
    if (state.isDown) throw new Error("connect ECONNREFUSED");
    state.searches.push(query);
    const { limit = 100, after = "0" } = query;
    const messages: MessageInfo[] = [];
    let at = Number(after);
    for (const end = at + sight; at < Math.min(samples.length, end) && messages.length < limit; at++)
      if (fits(samples[at]!, query)) messages.push(infoOf(samples[at]!, at));
    const next = at < samples.length ? String(at) : null;
    return { messages, next, lookedBackTo: next === null ? null : new Date(1_000_000 - at) };
  };
  return { ...state, store: { admin: { search } } as unknown as Store, state };
}

function fits(sample: Sample, { id, key, type, aggregateType, aggregateId, correlationId }: MessageSearch): boolean {
  const wanted = { id, key, type, aggregateType, aggregateId, correlationId };
  return Object.entries(wanted).every(
    ([field, value]) => value === undefined || sample[field as keyof Sample] === value,
  );
}

function infoOf({ id, key = "", type = "t", correlationId, ...aggregate }: Sample, at: number): MessageInfo {
  const { aggregateType = null, aggregateId = null } = aggregate;
  const headers = correlationId === undefined ? {} : { correlationId };
  const own = { id, key, type, stream: "s", headers, aggregateType, aggregateId, createdAt: new Date(1_000_000 - at) };
  const state = { relay: "r", status: "published", attempts: 1, lastError: null, deliverAt: null, publishedAt: null };
  return { ...own, ...state, position: 1n } as unknown as MessageInfo;
}

async function find(stores: Readonly<Record<string, Store>>, fields: Record<string, string>) {
  const answer = await findMessages(Object.entries(stores), new PageQuery(new URLSearchParams(fields), SEARCH_FIELDS));
  return { ...answer, ids: answer.messages.map(({ id }) => id) };
}

/** All pages of a search, and how many there were. */
async function findAll(stores: Readonly<Record<string, Store>>, fields: Record<string, string>) {
  const ids: string[] = [];
  let after: string | null = "";
  let pages = 0;
  for (; after !== null && pages < 1000; pages++) {
    const page: Awaited<ReturnType<typeof find>> = await find(stores, { ...fields, after });
    ids.push(...page.ids);
    after = page.next;
  }
  return { ids, pages };
}

const many = (count: number, of: Omit<Sample, "id">): Sample[] =>
  Array.from({ length: count }, (_, n) => ({ id: `m-${n}`, ...of }));

describe("the search box", () => {
  test("goes on behind the first hundred", async () => {
    const { store } = storeOf(many(250, { key: "ada" }));
    const first = await find({ store }, { q: "ada" });
    expect(first.ids).toHaveLength(100);
    expect(first.next).not.toBeNull();
    expect(first.lookedBackTo).not.toBeNull();
    const { ids } = await findAll({ store }, { q: "ada" });
    expect(ids).toEqual(Array.from({ length: 250 }, (_, n) => `m-${n}`));
  });

  test("shows a message once that several guesses find, on whichever pages these are", async () => {
    // An aggregate is mostly its key as well.
    const samples = many(300, { key: "4711" }).map((one, n) => ({
      ...one,
      ...(n % 3 === 0 ? {} : { aggregateType: "order", aggregateId: "4711" }),
      ...(n % 5 === 0 ? { correlationId: "4711" } : {}),
      ...(n % 7 === 0 ? { key: "other", type: "4711" } : {}),
    }));
    const { store } = storeOf(samples);
    const { ids } = await findAll({ store }, { q: "4711", limit: "20" });
    const about = samples.filter(({ key, aggregateId, correlationId }) =>
      [key, aggregateId, correlationId].includes("4711"),
    );
    expect(ids).toHaveLength(new Set(ids).size);
    expect(ids.toSorted()).toEqual(about.map(({ id }) => id).toSorted());
  });

  test("an empty page that has more behind it is not taken for nothing", async () => {
    const samples = [...many(50, { key: "other", type: "ada" }), { id: "old", key: "ada" }];
    const { store, state } = storeOf(samples, 10);
    const first = await find({ store }, { q: "ada" });
    expect([first.ids, first.next === null]).toEqual([[], false]);
    expect((await findAll({ store }, { q: "ada" })).ids).toEqual(["old"]);
    expect(state.searches.filter(({ type }) => type !== undefined)).toEqual([]);
  });

  test("what no index knows may be a type, also when that is known only after several pages", async () => {
    const { store } = storeOf(many(50, { key: "other", type: "ada" }), 10);
    const { ids } = await findAll({ store }, { q: "ada" });
    expect(ids).toHaveLength(50);
  });

  test("a filter beside the word holds", async () => {
    const { store } = storeOf([...many(3, { key: "ada", type: "a" }), { id: "b", key: "ada", type: "b" }]);
    expect((await findAll({ store }, { q: "ada", type: "b" })).ids).toEqual(["b"]);
    expect((await findAll({ store }, { q: "a", type: "b" })).ids).toEqual([]);
  });
});

describe("several stores", () => {
  test.each([{ q: "ada" }, { key: "ada" }])(
    "one that fails on a page is asked again for the same, by %o",
    async (fields) => {
      const [orders, payments] = [storeOf(many(150, { key: "ada" })), storeOf(many(250, { key: "ada" }))];
      const stores = { orders: orders.store, payments: payments.store };
      const first = await find(stores, fields);
      expect(first.ids).toHaveLength(200);
      payments.state.isDown = true;
      const second = await find(stores, { ...fields, after: first.next! });
      expect([second.ids.length, second.missing.map(({ store }) => store)]).toEqual([50, ["payments"]]);
      // Alone it has to say why.
      await expect(find(stores, { ...fields, after: second.next! })).rejects.toThrow("ECONNREFUSED");
      payments.state.isDown = false;
      const third = await find(stores, { ...fields, after: second.next! });
      expect(third.messages.map(({ store, id }) => `${store} ${id}`)).toEqual(
        Array.from({ length: 100 }, (_, n) => `payments m-${100 + n}`),
      );
    },
  );

  test.each([{ q: "ada" }, { key: "ada" }])(
    "one that fails at first is asked from the beginning, by %o",
    async (fields) => {
      const [orders, payments] = [storeOf(many(5, { key: "ada" })), storeOf(many(5, { key: "ada" }))];
      const stores = { orders: orders.store, payments: payments.store };
      payments.state.isDown = true;
      const first = await find(stores, fields);
      expect([first.ids.length, first.missing.length]).toEqual([5, 1]);
      payments.state.isDown = false;
      const second = await find(stores, { ...fields, after: first.next! });
      expect(second.messages.map(({ store }) => store)).toEqual(Array(5).fill("payments"));
      expect(second.next).toBeNull();
    },
  );

  test.each(["nonsense", JSON.stringify({ orders: 1 }), JSON.stringify({ orders: { constructor: "1" } })])(
    "a place that is none is refused: %s",
    async (text) => {
      const stores = { orders: storeOf([]).store, payments: storeOf([]).store };
      const after = Buffer.from(text).toString("base64url");
      await expect(find(stores, { q: "ada", after })).rejects.toThrow(/after is no place/);
    },
  );
});
