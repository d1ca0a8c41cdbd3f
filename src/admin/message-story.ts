import type { Store } from "../core/contracts.ts";
import type { StoryAnswer, StoryNode, StoryRelay } from "./page-api.ts";
import { aggregateOf } from "./message-views.ts";
import { contentsOf, errorOrNull, errorText, type RedactOption, shortOrNull, shortText } from "./shown-text.ts";
import { readStory } from "./story.ts";
import type { StoryDelivery, StoryMessage, StoryPlace } from "./story-tree.ts";

const MOST = 300;

/** One message with what caused it and what it caused, as the page shows it. */
export async function messageStory(
  stores: Readonly<Record<string, Store>>,
  id: string,
  redact: RedactOption | undefined,
): Promise<StoryAnswer> {
  const { message, causes, cut, unreachable } = await readStory(stores, id, { most: MOST });
  const missing = unreachable.map(({ store, error }) => ({ store, error: errorText(error) }));
  const isKnown = message.places.length > 0 || message.receipts.length > 0 || message.caused.length > 0;
  if (!isKnown) return { asked: id, correlationId: null, roots: [], cut, missing };
  const node = nodeOf(message, redact);
  // From the last cause up: each has the next one below it.
  const root = causes.reduceRight(
    (below: StoryNode, cause): StoryNode => ({ ...nodeOf({ ...cause, caused: [] }, redact), children: [below] }),
    node,
  );
  const { correlationId } = message.places[0]?.headers ?? {};
  const correlation = typeof correlationId === "string" ? correlationId : id;
  return { asked: id, correlationId: shortText(correlation), roots: [root], cut, missing };
}

function nodeOf({ id, places, receipts, caused }: StoryMessage, redact: RedactOption | undefined): StoryNode {
  const [place] = places;
  const { traceparent } = place?.headers ?? {};
  const trace = typeof traceparent === "string" ? /^00-([0-9a-f]{32})-/.exec(traceparent)?.[1] : undefined;
  return {
    id: shortText(id),
    ...(place === undefined ? NOWHERE : placeView(place, redact)),
    // What an inbox stored is delivered from there by a relay of its own.
    relays: places.flatMap(({ store, deliveries }) => deliveries.map((delivery) => relayStep(store, delivery))),
    receipts: receipts.map((receipt) => ({
      store: receipt.store,
      consumer: receipt.consumer,
      status: receipt.status,
      receivedAt: receipt.receivedAt?.getTime() ?? null,
      processedAt: receipt.processedAt?.getTime() ?? null,
      attempts: receipt.attempts,
      lastError: errorOrNull(receipt.lastError),
    })),
    traceId: trace ?? null,
    children: caused.map((one) => nodeOf(one, redact)),
  };
}

type PlaceView = Omit<StoryNode, "id" | "relays" | "receipts" | "traceId" | "children">;

/** Only its receipts, or what it caused, tell of it. */
const NOWHERE: PlaceView = {
  store: null,
  position: null,
  stream: "",
  type: "a message that no store has",
  key: null,
  aggregate: null,
  createdAt: null,
  deliverAt: null,
  contents: {
    kind: "hidden",
    body: { text: "It is in none of these stores", length: null },
    headers: { text: "", length: null },
    masked: true,
  },
};

function placeView(place: StoryPlace, redact: RedactOption | undefined): PlaceView {
  return {
    store: place.store,
    position: place.position?.toString() ?? null,
    stream: shortText(place.stream),
    type: shortText(place.type),
    key: shortOrNull(place.key),
    aggregate: aggregateOf(place),
    createdAt: place.createdAt.getTime(),
    deliverAt: place.deliveries[0]?.deliverAt?.getTime() ?? null,
    contents: contentsOf(place.store, place, redact),
  };
}

function relayStep(
  store: string,
  { relay, status, attempts, lastError, errors, publishedAt }: StoryDelivery,
): StoryRelay {
  const known = errors.slice(-20).map(({ at, error }) => ({ at: Date.parse(at), error: errorText(error) }));
  const last = known.length > 0 || lastError === null ? known : [{ at: null, error: errorText(lastError) }];
  return { store, relay, status, attempts, publishedAt: publishedAt?.getTime() ?? null, errors: last };
}
