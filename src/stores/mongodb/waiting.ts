import type { MessageInfo, WaitingQuery } from "../../core/contracts.ts";
import { laneOf } from "../../core/lane.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { listed, messageInfo, withoutContents } from "./message-info.ts";
import type { Document } from "./mongodb-client.ts";
import { numberOr } from "./mongodb-document.ts";
import { noSuchRelay } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { viewOf } from "./mongodb-ownership.ts";
import { reads } from "./relay-figures.ts";

/** So many messages of the lane that are ready are looked at. */
const LOOKED_AT = 10_000;

/** The open messages of a key, from the indexes over open work: however many of its messages are done. */
export async function readWaiting({ outbox, relays }: Tables, query: WaitingQuery): Promise<MessageInfo[]> {
  const { relay, stream, key, after, limit = DEFAULT_PAGE, contents = true } = query;
  const [known] = await relays.aggregate([{ $match: { _id: relay } }, { $set: { at: "$$NOW" } }]);
  if (known === undefined) throw noSuchRelay(relay);
  if (!reads(viewOf(known).streams, stream)) return [];
  const lane = laneOf(key);
  const behind = after === undefined ? {} : { position: { $gt: Number(after) } };
  const first = [
    { $sort: { position: 1 } },
    { $limit: limit },
    { $set: { now: "$$NOW" } },
    ...withoutContents(contents),
  ];
  const read = (steps: Document[], hint: string) => outbox.aggregate([...steps, ...first], { hint });
  const [parked, held, ready] = await Promise.all([
    read([{ $match: { waits: "parked", relay, lane, stream, key, ...behind } }], "txbox_parked"),
    read([{ $match: { status: "processing", relay, lane, stream, key, ...behind } }], "txbox_processing"),
    read(
      [
        { $match: { waits: "ready", lane, ...behind } },
        { $sort: { position: 1 } },
        { $limit: LOOKED_AT },
        { $match: { stream, key } },
      ],
      "txbox_ready",
    ),
  ]);
  const byId = new Map([...parked, ...held, ...ready].map((document) => [String(document["_id"]), document]));
  return [...byId.values()]
    .toSorted((a, b) => numberOr(a["position"], 0) - numberOr(b["position"], 0))
    .slice(0, limit)
    .map((document) => messageInfo(contents ? document : listed(document)));
}
