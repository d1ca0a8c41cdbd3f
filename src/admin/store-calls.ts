import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type {
  Admin,
  BlockedKey,
  DeadChoice,
  DeadFilter,
  DeadLetter,
  DeadPlace,
  DeadQuery,
  MessageInfo,
  MessageStatus,
  ReceiptInfo,
  RewindTarget,
  Store,
} from "../core/contracts.ts";
import type { Headers, Message } from "../core/message.ts";
import { PageFailure } from "./page-failure.ts";

/**
 * The calls of a store's admin that only newer stores have, and what the page does without them. Everything else of the
 * page asks here and nowhere else.
 */

export interface MessageSearch {
  id?: string;
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  correlationId?: string;
  stream?: string;
  type?: string;
  status?: MessageStatus;
  relay?: string;
  since?: Date;
  until?: Date;
  after?: string;
  limit?: number;
}

export interface MessagePage {
  messages: MessageInfo[];
  next: string | null;
  lookedBackTo: Date | null;
}

export interface DeadGroup {
  group: string;
  relay: string;
  stream: string;
  type: string;
  error: string;
  count: number;
  estimated: boolean;
  firstDiedAt: Date;
  lastDiedAt: Date;
  keys: number | null;
}

export interface Author {
  actor: string;
  reason?: string;
}

export interface Change {
  at: Date;
  actor: string;
  reason: string | null;
  action: string;
  relay: string | null;
  count: number | null;
}

interface LetterName {
  relay: string;
  position: bigint;
}

export type GroupFilter = DeadFilter & { group?: string };

interface Newer {
  search(query: MessageSearch): Promise<MessagePage>;
  waiting(query: { relay: string; stream: string; key: string; limit?: number }): Promise<MessageInfo[]>;
  receiptsOf(
    messages: readonly { id: string; createdAt: Date }[],
  ): Promise<(ReceiptInfo & { id: string; consumer: string })[]>;
  rewindPreview(
    relay: string,
    target: RewindTarget,
  ): Promise<{ messages: number; estimated: boolean; from: Date | null }>;
  deadGroups(query: { relay?: string; stream?: string; type?: string; limit?: number }): Promise<DeadGroup[]>;
  edit(letter: LetterName, change: { payload?: unknown; body?: Uint8Array; headers?: Headers }): Promise<void>;
  original(letter: LetterName): Promise<Message | null>;
  by(author: Author): Admin;
  changes(query: { since?: Date; relay?: string; limit?: number }): Promise<{ changes: Change[]; next: string | null }>;
}

function newer(store: { readonly admin: Admin }): Admin & Partial<Newer> {
  return store.admin;
}

/** The same admin, whose changes are noted under this name. */
function adminBy(store: Store, author: Author): Admin {
  return newer(store).by?.(author) ?? store.admin;
}

export async function searchMessages(store: Store, query: MessageSearch): Promise<MessagePage> {
  const { search } = newer(store);
  if (search !== undefined) return search.call(store.admin, query);
  const { type, status, since, until, after: _, limit = 100, ...found } = query;
  const all = await store.admin.find({ ...found, limit: 1000 });
  const fits = all.filter(
    (one) =>
      (type === undefined || one.type === type) &&
      (status === undefined || one.status === status) &&
      (since === undefined || one.createdAt >= since) &&
      (until === undefined || one.createdAt < until),
  );
  return { messages: fits.toReversed().slice(0, limit), next: null, lookedBackTo: null };
}

export async function waitingBehind(
  store: Store,
  { relay, stream, key, limit = 100 }: { relay: string; stream: string; key: string; limit?: number },
): Promise<MessageInfo[]> {
  const { waiting } = newer(store);
  if (waiting !== undefined) return waiting.call(store.admin, { relay, stream, key, limit });
  const all = await store.admin.find({ relay, stream, key, limit: 1000 });
  return all.filter(({ status }) => status !== "published" && status !== "dead").slice(0, limit);
}

export interface ConsumerReceipt extends ReceiptInfo {
  id: string;
  consumer: string;
}

export async function receiptsOf(
  store: Store,
  messages: readonly { id: string; createdAt: Date }[],
): Promise<ConsumerReceipt[]> {
  if (messages.length === 0) return [];
  const call = newer(store).receiptsOf;
  if (call !== undefined) return call.call(store.admin, messages);
  const { activity } = await store.admin.figures();
  const consumers = new Set(activity.flatMap(({ consumer }) => (consumer === null ? [] : [consumer])));
  const found: ConsumerReceipt[] = [];
  for (const consumer of consumers) {
    const receipts = await store.admin.receipts({ consumer, messages });
    receipts.forEach((receipt, i) => {
      if (receipt.status !== "none" && receipt.status !== "expired")
        found.push({ ...receipt, id: messages[i]!.id, consumer });
    });
  }
  return found;
}

/** How many messages a rewind would send again; null: it is not known. */
export async function rewindPreview(
  store: Store,
  relay: string,
  target: RewindTarget,
): Promise<{ messages: number; estimated: boolean } | null> {
  return (await newer(store).rewindPreview?.(relay, target)) ?? null;
}

const LOOKED_AT = 2000;

export async function deadGroups(
  store: Store,
  query: { relay?: string; stream?: string; type?: string; limit?: number },
): Promise<{ groups: DeadGroup[]; cut: boolean }> {
  const call = newer(store).deadGroups;
  if (call !== undefined) {
    const groups = await call.call(store.admin, query);
    return { groups, cut: groups.length === query.limit };
  }
  const { limit: _, ...filter } = query;
  const letters = await store.admin.dead({ ...filter, limit: LOOKED_AT });
  const groups = new Map<string, DeadGroup & { seen: Set<string> }>();
  for (const letter of letters) {
    const group = groupOf(letter);
    const known = groups.get(group);
    if (known === undefined) {
      const { relay, stream, type, diedAt } = letter;
      const seen = new Set([letter.key ?? letter.id]);
      const first = { group, relay, stream, type, error: letter.lastError, count: 1, estimated: false };
      groups.set(group, { ...first, firstDiedAt: diedAt, lastDiedAt: diedAt, keys: 1, seen });
      continue;
    }
    known.count++;
    known.seen.add(letter.key ?? letter.id);
    known.keys = known.seen.size;
    if (letter.diedAt < known.firstDiedAt) known.firstDiedAt = letter.diedAt;
    if (letter.diedAt > known.lastDiedAt) known.lastDiedAt = letter.diedAt;
  }
  const all = [...groups.values()].map(({ seen: _seen, ...group }) => group).sort((a, b) => b.count - a.count);
  return { groups: all, cut: letters.length === LOOKED_AT };
}

function groupOf({ relay, type, lastError, group }: DeadLetter & { group?: string }): string {
  if (group !== undefined) return group;
  const plain = lastError.replaceAll(/"[^"]*"|'[^']*'|`[^`]*`/g, "?").replaceAll(/[\w-]*\d[\w-]*/g, "#");
  return createHash("sha256").update(`${relay}\n${type}\n${plain}`).digest("hex").slice(0, 12);
}

/** Letters by a group, where the store knows groups; else the page looks at each. */
export async function deadLetters(
  store: Store,
  query: DeadQuery & { group?: string },
): Promise<(DeadLetter & { edited?: boolean })[]> {
  if (query.group === undefined || newer(store).deadGroups !== undefined) return store.admin.dead(query);
  const { group, limit = 100, ...rest } = query;
  const found: DeadLetter[] = [];
  let after = rest.after;
  for (let looked = 0; looked < 10_000 && found.length < limit;) {
    const page = await store.admin.dead({ ...rest, ...(after === undefined ? {} : { after }), limit: LOOKED_AT });
    found.push(...page.filter((letter) => groupOf(letter) === group));
    looked += page.length;
    after = page.at(-1);
    if (page.length < LOOKED_AT) break;
  }
  return found.slice(0, limit);
}

/** Requeues or discards; how many. */
export async function tellLetters(
  store: Store,
  what: "requeue" | "discard",
  choice: DeadChoice & { group?: string },
  author: Author,
): Promise<number> {
  const admin = adminBy(store, author);
  if (choice.group === undefined || newer(store).deadGroups !== undefined) return admin[what](choice);
  const { all: _all, limit = 10_000, ...filter } = choice;
  let count = 0;
  for (const { relay, position } of await deadLetters(store, { ...filter, limit: Math.min(limit, 10_000) }))
    count += await admin[what]({ relay, position });
  return count;
}

/** Pause, resume, rewind or drop a relay. */
export async function tellRelay(
  store: Store,
  what: "pause" | "resume" | "drop" | { rewind: RewindTarget },
  relay: string,
  author: Author,
): Promise<void> {
  const admin = adminBy(store, author);
  if (typeof what === "object") await admin.rewind(relay, what.rewind);
  else await admin[what](relay);
}

/** Why a letter cannot be edited; null: it can. */
export function whyNoEdit(store: Store): string | null {
  return newer(store).edit === undefined ? "This store cannot edit letters" : null;
}

export async function editLetter(
  store: Store,
  letter: LetterName,
  change: { payload?: unknown; headers?: Headers },
  author: Author,
): Promise<void> {
  const admin: Admin & Partial<Newer> = adminBy(store, author);
  if (admin.edit === undefined) throw new PageFailure(400, "This store cannot edit letters");
  await admin.edit(letter, change);
}

export async function originalOf(store: Store, letter: LetterName): Promise<Message | null> {
  return (await newer(store).original?.(letter)) ?? null;
}

/** Null: the store keeps none. */
export async function changesOf(
  store: Store,
  query: { since?: Date; relay?: string; limit?: number },
): Promise<Change[] | null> {
  const { changes } = newer(store);
  return changes === undefined ? null : (await changes.call(store.admin, query)).changes;
}

export interface RedriveProgress {
  requeued: number;
  /** Why it waits now; null: it does not. */
  waitsFor: string | null;
}

/** Requeues at a rate, in order, and waits while no process runs the relay. */
export async function redriveLetters(
  store: Store,
  choice: DeadChoice & { group?: string },
  { perSecond, signal, author }: { perSecond: number; signal: AbortSignal; author: Author },
  onProgress: (progress: RedriveProgress) => void,
): Promise<number> {
  let requeued = 0;
  let left = choice.limit ?? Number.MAX_SAFE_INTEGER;
  while (!signal.aborted && left > 0) {
    const blocked = await targetOut(store, choice.relay);
    onProgress({ requeued, waitsFor: blocked });
    if (blocked === null) {
      const limit = Math.min(left, Math.max(1, perSecond));
      const part = await tellLetters(store, "requeue", { ...choice, limit }, author);
      requeued += part;
      left -= part;
      onProgress({ requeued, waitsFor: null });
      if (part === 0) break;
    }
    await sleep(1000, undefined, { signal }).catch(() => undefined);
  }
  return requeued;
}

async function targetOut(store: Store, relay: string | undefined): Promise<string | null> {
  if (relay === undefined) return null;
  const samples = await store.admin.samples({ relay, since: new Date(Date.now() - 60_000) });
  const last = samples.at(-1);
  return last !== undefined && last.unavailable > 0 && last.published === 0 ? "the target is out" : null;
}

/** The place of a page's last entry, as a text. */
export function placeText(place: DeadPlace | BlockedKey): string {
  const { relay, stream, id, position } = place;
  const more = "lane" in place ? { key: place.key, lane: place.lane } : {};
  const at = { relay, stream, id, position: position?.toString() ?? null, ...more };
  return Buffer.from(JSON.stringify(at)).toString("base64url");
}

/** The opposite of `placeText`; throws 400 for any other text. */
export function placeOf(text: string): DeadPlace & Pick<BlockedKey, "key" | "lane"> {
  try {
    const at = JSON.parse(Buffer.from(text, "base64url").toString()) as Record<string, unknown>;
    const position = at["position"] === null ? null : BigInt(at["position"] as string);
    return { ...at, position } as DeadPlace & Pick<BlockedKey, "key" | "lane">;
  } catch {
    throw new PageFailure(400, "That is no place of a page before");
  }
}
