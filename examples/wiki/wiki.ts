import { MongoClient, type Collection } from "mongodb";
import { createOutbox, type NewMessage } from "txbox";
import { createMongoStore } from "txbox/mongodb";

/** The canonical data: a page and its revisions. */
export interface Page {
  _id: string;
  head: number;
}

export interface Revision {
  _id: string;
  pageId: string;
  revision: number;
  text: string;
  created_at: Date;
}

/** Made from it in the background, and nothing else: each can be thrown away and made again. */
export interface Snapshot {
  _id: string;
  html: string;
}

export interface SearchDocument {
  _id: string;
  revision: number;
  words: string[];
}

export interface Counter {
  _id: string;
  revisions: number;
}

export interface RevisionCreated {
  pageId: string;
  revision: number;
  text: string;
}

export type WikiEvents = { PageRevisionCreated: RevisionCreated };

export function openWiki(url: string) {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 5000 });
  const store = createMongoStore({ client });
  const collection = <T extends object>(name: string): Collection<T> => client.db().collection<T>(name);
  return {
    client,
    store,
    outbox: createOutbox<WikiEvents, Parameters<typeof store.writer.enqueue>[0]>({ store }),
    pages: collection<Page>("pages"),
    revisions: collection<Revision>("revisions"),
    snapshots: collection<Snapshot>("page_snapshots"),
    search: collection<SearchDocument>("search_documents"),
    counters: collection<Counter>("counters"),
  };
}

export type Wiki = ReturnType<typeof openWiki>;

/** Whoever writes it, and however often: one revision is one message. */
export function revisionCreated({ pageId, revision, text }: RevisionCreated) {
  return {
    id: `${pageId}:${revision}`,
    stream: "wiki",
    type: "PageRevisionCreated",
    aggregateType: "page",
    aggregateId: pageId,
    payload: { pageId, revision, text },
  } as const satisfies NewMessage;
}
