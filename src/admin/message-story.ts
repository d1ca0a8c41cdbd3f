import type { MessageInfo, Store } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { aggregateOf } from "./message-views.ts";
import type { StoryAnswer, StoryNode, StoryReceipt } from "./page-api.ts";
import { contentsOf, errorOrNull, errorText, type RedactOption, shortOrNull, shortText } from "./shown-text.ts";
import { receiptsOf } from "./store-calls.ts";

const MOST = 300;

interface Found {
  readonly store: string;
  readonly rows: MessageInfo[];
}

/** One message and all of its chain as a tree over every store. */
export async function messageStory(
  stores: readonly (readonly [name: string, store: Store])[],
  id: string,
  redact: RedactOption | undefined,
): Promise<StoryAnswer> {
  const missing = new Map<string, string>();
  const found = new Map<string, Found>();
  const every = async (look: (name: string, store: Store) => Promise<void>): Promise<void> => {
    await Promise.all(
      stores.map(async ([name, store]) => {
        try {
          await look(name, store);
        } catch (error) {
          missing.set(name, errorText(describeError(error)));
        }
      }),
    );
  };
  const take = (store: string, rows: readonly MessageInfo[]): void => {
    for (const row of rows) {
      const key = JSON.stringify([store, row.id]);
      const known = found.get(key) ?? { store, rows: [] };
      if (!known.rows.some(({ relay }) => relay === row.relay)) known.rows.push(row);
      found.set(key, known);
    }
  };
  await every(async (name, store) => take(name, await store.admin.find({ id, limit: 100 })));
  const first = [...found.values()][0]?.rows[0];
  const correlationId =
    typeof first?.headers.correlationId === "string" ? first.headers.correlationId : (first?.id ?? id);
  if (first !== undefined)
    await every(async (name, store) => take(name, await store.admin.find({ correlationId, limit: MOST })));
  const receipts = new Map<string, StoryReceipt[]>();
  const ids = [...found.values()]
    .map(({ rows }) => ({ id: rows[0]!.id, createdAt: rows[0]!.createdAt }))
    .slice(0, MOST);
  await every(async (name, store) => {
    for (const { id: of, ...receipt } of await receiptsOf(store, ids)) {
      const all = receipts.get(of) ?? [];
      receipts.set(of, all);
      all.push({
        store: name,
        consumer: receipt.consumer,
        status: receipt.status,
        receivedAt: receipt.receivedAt?.getTime() ?? null,
        processedAt: receipt.processedAt?.getTime() ?? null,
        attempts: receipt.attempts,
        lastError: errorOrNull(receipt.lastError),
      });
    }
  });
  const nodes = [...found.values()]
    .slice(0, MOST)
    .map(({ store, rows }) => ({ rows, node: nodeOf(store, rows, receipts.get(rows[0]!.id) ?? [], redact) }));
  return {
    asked: id,
    correlationId: first === undefined ? null : shortText(correlationId),
    roots: treeOf(nodes),
    cut: found.size >= MOST,
    missing: [...missing].map(([store, error]) => ({ store, error })),
  };
}

function nodeOf(
  store: string,
  rows: readonly MessageInfo[],
  receipts: StoryReceipt[],
  redact: RedactOption | undefined,
): StoryNode {
  const [message] = rows as [MessageInfo];
  const { traceparent } = message.headers;
  const trace = typeof traceparent === "string" ? /^00-([0-9a-f]{32})-/.exec(traceparent)?.[1] : undefined;
  return {
    store,
    id: shortText(message.id),
    position: message.position?.toString() ?? null,
    stream: shortText(message.stream),
    type: shortText(message.type),
    key: shortOrNull(message.key),
    aggregate: aggregateOf(message),
    createdAt: message.createdAt.getTime(),
    deliverAt: message.deliverAt?.getTime() ?? null,
    relays: rows.map((row) => ({
      relay: row.relay,
      status: row.status,
      attempts: row.attempts,
      publishedAt: row.publishedAt?.getTime() ?? null,
      errors: attemptsOf(row),
    })),
    receipts,
    contents: contentsOf(store, message, redact),
    traceId: trace ?? null,
    children: [],
  };
}

function attemptsOf(
  row: MessageInfo & { errors?: readonly { at: string; error: string }[] },
): StoryNode["relays"][number]["errors"] {
  if (row.errors !== undefined && row.errors.length > 0)
    return row.errors.slice(-20).map(({ at, error }) => ({ at: Date.parse(at), error: errorText(error) }));
  return row.lastError === null ? [] : [{ at: null, error: errorText(row.lastError) }];
}

/** By what caused what. A loop of causes has no root: its oldest message becomes one. */
function treeOf(all: readonly { rows: readonly MessageInfo[]; node: StoryNode }[]): StoryNode[] {
  const sorted = all.toSorted((a, b) => a.node.createdAt - b.node.createdAt);
  const byId = new Map(sorted.map(({ rows, node }) => [rows[0]!.id, node]));
  const parents = new Map<StoryNode, StoryNode>();
  const roots: StoryNode[] = [];
  for (const { rows, node } of sorted) {
    const cause = rows[0]!.headers.causationId;
    const parent = typeof cause === "string" ? byId.get(cause) : undefined;
    if (parent === undefined || isAbove(node, parent, parents)) roots.push(node);
    else {
      parents.set(node, parent);
      parent.children.push(node);
    }
  }
  return roots;
}

function isAbove(node: StoryNode, below: StoryNode, parents: ReadonlyMap<StoryNode, StoryNode>): boolean {
  for (let at: StoryNode | undefined = below; at !== undefined; at = parents.get(at)) if (at === node) return true;
  return false;
}
