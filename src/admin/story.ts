import type { Admin, MessageInfo, Store } from "../core/contracts.ts";
import { describeError, errorCode, TxboxError } from "../core/errors.ts";
import { hideSecrets } from "../core/hide-secrets.ts";
import { rejectUnknownOptions, requireInteger } from "../core/options.ts";
import { LATE, settledWithin } from "../core/settled-within.ts";
import { textOrNull } from "../core/text-or-null.ts";
import { valueKind } from "../core/value-kind.ts";
import { causeOf, MAX_ID, storyTree, type StoryMessage, type StoryPlace, type StoryReceipt } from "./story-tree.ts";

export interface StoryOptions {
  /** At most so many messages. From 1 to 10,000. Default 500. */
  most?: number;
}

export interface Story {
  message: StoryMessage;
  /** What it was enqueued because of, from the first cause to the last, as far as the stores know. */
  causes: Omit<StoryMessage, "caused">[];
  /** How many messages there are in it. */
  count: number;
  /** There is more than was read. */
  cut: boolean;
  /** Stores that could not be asked, and why. */
  unreachable: { store: string; error: string }[];
}

const MOST = 500;
/** A store that does not answer is left out. */
const ANSWER_MS = 10_000;
/** Of one look through a store; each may come back empty-handed. */
const PAGES = 100;
const PAGE = 200;
/** So many receipts are asked for at once. */
const RECEIPTS = 1000;
const CAUSES = 100;

/**
 * One message as a tree over several stores: where it is, what each relay did with it, what each consumer of every store
 * knows of it, and what was enqueued because of it. Nothing is changed. A store that is down is named instead of failing
 * all of it. Causes are told by `causationId`; they are looked for among the messages of one correlation.
 */
export async function readStory(
  stores: Readonly<Record<string, Pick<Store, "admin">>>,
  id: string,
  options: StoryOptions = {},
): Promise<Story> {
  requireStores(stores);
  rejectUnknownOptions("readStory", options, ["most"]);
  const { most = MOST } = options;
  requireInteger("readStory", "most", most, 1, 10_000);
  const reader = new StoryReader(stores, most);
  const roots = await reader.search({ id });
  const known = new Map<string, StoryPlace[]>();
  addPlaces(known, roots);
  // What nothing but its receipts tell of may have begun a correlation under its id.
  const correlations = new Set([
    id,
    ...roots.flatMap(({ info }) => textOrNull(info.headers.correlationId, MAX_ID) ?? []),
  ]);
  for (const correlationId of correlations) addPlaces(known, await reader.search({ correlationId }));
  const causes = await reader.causesOf(known, id);
  const tree = storyTree(known, id, most);
  await reader.addReceipts([...tree.messages, ...causes]);
  return {
    message: tree.root,
    causes,
    count: tree.messages.length,
    cut: tree.cut || reader.cut,
    unreachable: reader.unreachable,
  };
}

interface Found {
  store: string;
  info: MessageInfo;
}

class StoryReader {
  readonly #admins: Map<string, Admin>;
  readonly #most: number;
  readonly unreachable: Story["unreachable"] = [];
  cut = false;

  constructor(stores: Readonly<Record<string, Pick<Store, "admin">>>, most: number) {
    this.#admins = new Map(Object.entries(stores).map(([name, { admin }]) => [name, admin]));
    this.#most = most;
  }

  /** Of all stores together. */
  async search(query: { id: string } | { correlationId: string }): Promise<Found[]> {
    const found = await this.#each(async (admin, store) => {
      const messages: Found[] = [];
      const ids = new Set<string>();
      let after: string | null | undefined;
      for (let page = 0; after !== null; page++) {
        if (page === PAGES || ids.size >= this.#most) {
          this.cut = true;
          break;
        }
        const limit = Math.min(PAGE, this.#most - ids.size);
        const answer = await admin.search({ ...query, limit, ...(after === undefined ? {} : { after }) });
        for (const info of answer.messages) {
          ids.add(info.id);
          messages.push({ store, info });
        }
        after = answer.next;
      }
      return messages;
    });
    return found.flat();
  }

  /** From the message up to its first cause, as far as it is known; given from the first on. A loop ends it. */
  async causesOf(known: Map<string, StoryPlace[]>, id: string): Promise<StoryMessage[]> {
    const causes: StoryMessage[] = [];
    const seen = new Set([id]);
    for (let at = causeOf(known.get(id)); at !== undefined && !seen.has(at); at = causeOf(known.get(at))) {
      if (causes.length === CAUSES) {
        this.cut = true;
        break;
      }
      seen.add(at);
      if (!known.has(at)) addPlaces(known, await this.search({ id: at }));
      causes.unshift({ id: at, places: known.get(at) ?? [], receipts: [], caused: [] });
    }
    return causes;
  }

  async addReceipts(messages: readonly StoryMessage[]): Promise<void> {
    const byId = new Map(messages.map((message) => [message.id, message]));
    const asked = messages.map(({ id, places }) => ({ id, createdAt: places[0]?.createdAt ?? new Date() }));
    for (let from = 0; from < asked.length; from += RECEIPTS) {
      const part = asked.slice(from, from + RECEIPTS);
      const answers = await this.#each(async (admin, store) => {
        const receipts = await admin.receiptsOf(part);
        return receipts.map((receipt): StoryReceipt => ({ store, ...receipt }));
      });
      for (const receipt of answers.flat()) {
        const { receipts } = byId.get(receipt.id)!;
        if (!receipts.some((one) => isSameReceipt(one, receipt))) receipts.push(receipt);
      }
    }
  }

  /** Asks all stores at once. One that fails or takes too long is named, and not asked again. */
  async #each<T>(ask: (admin: Admin, store: string) => Promise<T>): Promise<T[]> {
    const answers = await Promise.all(
      [...this.#admins].map(async ([store, admin]) => {
        try {
          const answer = await settledWithin(ask(admin, store), ANSWER_MS);
          if (typeof answer !== "symbol") return [answer];
          const late = answer === LATE ? `no answer within ${ANSWER_MS / 1000} s` : "stopped";
          this.#giveUp(store, late);
        } catch (error) {
          // Not the store's fault.
          if (errorCode(error) === "invalid_option") throw error;
          this.#giveUp(store, hideSecrets(describeError(error)));
        }
        return [];
      }),
    );
    return answers.flat();
  }

  #giveUp(store: string, error: string): void {
    this.#admins.delete(store);
    this.unreachable.push({ store, error });
  }
}

/** Puts what relays did with a message together, store by store. */
function addPlaces(known: Map<string, StoryPlace[]>, found: readonly Found[]): void {
  for (const { store, info } of found) {
    const { id, relay, status, attempts, lastError, errors, publishedAt, deliverAt, position, ...message } = info;
    const places = known.get(id) ?? [];
    known.set(id, places);
    const same = places.find((place) => isSamePlace(place, info));
    // One database under two names counts once.
    if (same !== undefined && same.store !== store) continue;
    const place = same ?? { ...message, id, store, position, deliveries: [] };
    if (same === undefined) places.push(place);
    const delivery = { relay, status, attempts, lastError, errors, publishedAt, deliverAt };
    if (!place.deliveries.some((one) => one.relay === relay)) place.deliveries.push(delivery);
  }
  for (const places of known.values()) places.sort(byOrigin);
}

function isSamePlace(place: StoryPlace, { stream, position, createdAt }: MessageInfo): boolean {
  return place.stream === stream && place.position === position && place.createdAt.getTime() === createdAt.getTime();
}

function isSameReceipt(a: StoryReceipt, b: StoryReceipt): boolean {
  return (
    a.consumer === b.consumer &&
    a.status === b.status &&
    a.receivedAt?.getTime() === b.receivedAt?.getTime() &&
    a.processedAt?.getTime() === b.processedAt?.getTime()
  );
}

/** What an inbox stored is a copy. */
function byOrigin(a: StoryPlace, b: StoryPlace): number {
  const stored = Number(a.stream.startsWith("inbox.")) - Number(b.stream.startsWith("inbox."));
  return stored !== 0 ? stored : a.createdAt.getTime() - b.createdAt.getTime();
}

function requireStores(stores: unknown): void {
  const isStores =
    typeof stores === "object" &&
    stores !== null &&
    Object.keys(stores).length > 0 &&
    Object.values(stores).every((store) => typeof (store as Partial<Store> | null)?.admin?.search === "function");
  if (isStores) return;
  throw new TxboxError("invalid_option", `readStory: stores must be stores by their names, got ${valueKind(stores)}`, {
    field: "stores",
    fix: "Give { orders: ordersStore, payments: paymentsStore }",
  });
}
