import { revisionCreated, type Wiki } from "./wiki.ts";

/** The page, its new revision and the message about it, in one transaction. */
export async function saveRevision(wiki: Wiki, pageId: string, text: string): Promise<number> {
  const { client, pages, revisions, outbox } = wiki;
  return client.withSession((session) =>
    session.withTransaction(async () => {
      const page = await pages.findOneAndUpdate(
        { _id: pageId },
        { $inc: { head: 1 } },
        { session, upsert: true, returnDocument: "after" },
      );
      const revision = page?.head ?? 1;
      const _id = `${pageId}:${revision}`;
      await revisions.insertOne({ _id, pageId, revision, text, created_at: new Date() }, { session });
      await outbox.enqueue(session, revisionCreated({ pageId, revision, text }));
      return revision;
    }),
  );
}

/**
 * As it is without transactions, or in a version that forgot: the data first, the message second, and a crash between
 * the two. Nobody hears of this revision until the reconciler finds it.
 */
export async function saveRevisionAndCrash({ pages, revisions }: Wiki, pageId: string, text: string): Promise<void> {
  const page = await pages.findOneAndUpdate(
    { _id: pageId },
    { $inc: { head: 1 } },
    { upsert: true, returnDocument: "after" },
  );
  const revision = page?.head ?? 1;
  await revisions.insertOne({ _id: `${pageId}:${revision}`, pageId, revision, text, created_at: new Date() });
}
