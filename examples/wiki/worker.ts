import type { ClientSession } from "mongodb";
import { createInbox, createReconciler, createRelay, publishEach } from "txbox";
import { writeResult } from "txbox/mongodb";
import { openWiki, revisionCreated, type RevisionCreated, type WikiEvents } from "./wiki.ts";

// Renders, indexes and counts, with no broker: the relay hands each message to a function. Start as many as you like.
const wiki = openWiki(process.env["MONGODB_URL"] ?? "mongodb://127.0.0.1:27017/wiki?replicaSet=rs0");

/** Results under keys of their own: a repeat finds them there and changes nothing. */
async function render({ pageId, revision, text }: RevisionCreated): Promise<void> {
  await writeResult(wiki.snapshots, { _id: `${pageId}:${revision}`, html: `<p>${text}</p>` });
}

async function index({ pageId, revision, text }: RevisionCreated): Promise<void> {
  const words = [...new Set(text.toLowerCase().split(/\W+/))];
  await writeResult(wiki.search, { _id: pageId, revision, words }, { newerBy: "revision" });
}

/** Counting twice would be wrong, and no key can help: so the receipt and the count are one transaction. */
const inbox = createInbox<WikiEvents, ClientSession>({ store: wiki.store, consumer: "counters" });
inbox.on("PageRevisionCreated", async (session, { payload: { pageId } }) => {
  await wiki.counters.updateOne({ _id: pageId }, { $inc: { revisions: 1 } }, { session, upsert: true });
});

const relay = createRelay({
  store: wiki.store,
  name: "background",
  publisher: publishEach(async (message) => {
    const created = JSON.parse(String(message.body)) as RevisionCreated;
    await render(created);
    await index(created);
    await inbox.handle(message);
  }),
  leaseMs: 2000,
  batchSize: 50,
  onEvent(event) {
    if (event.type === "dead" || event.type === "failed") console.log(event);
  },
});

/** Revisions without a snapshot that are older than a moment: their message was left out. */
const reconciler = createReconciler({
  store: wiki.store,
  find: () =>
    wiki.revisions.aggregate<RevisionCreated>([
      { $match: { $expr: { $lt: ["$created_at", { $subtract: ["$$NOW", 1000] }] } } },
      { $lookup: { from: "page_snapshots", localField: "_id", foreignField: "_id", as: "done" } },
      { $match: { done: [] } },
    ]),
  toMessage: (revision) => ({ ...revisionCreated(revision), headers: { by: "reconciler" } }),
  everyMs: 500,
});

process.once("SIGTERM", () => {
  void relay
    .stop()
    .then(() => reconciler.stop())
    .then(() => wiki.client.close())
    .then(() => process.exit(0));
});
await relay.start();
reconciler.start();
console.log("ready");
